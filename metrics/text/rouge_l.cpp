#include "metrics/text/rouge_l.h"

namespace kvarena::metrics {
namespace {

std::string as_it_is(std::string_view text) { return std::string(text); }

constexpr int64_t kRecursionLimit = 991;  // steps

}  // namespace

KVARENA_METRIC({.id = "rouge_l",
                .title = "ROUGE-L (pltrdy)",
                .version = 2,
                .summary = "Summary-level ROUGE-L over sets of words, sentences cut at full stops, case kept, as the "
                           "Python package rouge 1.0.1 computes it; best over the answers. Where that package stops at "
                           "Python's recursion limit (a sentence of about a thousand words, such as one that repeats "
                           "itself without a full stop) LongBench writes 0, and so does this; "
                           "without_recursion_limit is the formula's value.",
                .source = "pltrdy/rouge @c1b90a78 rouge_l_summary_level; THUDM/LongBench @2e00731f rouge_score",
                .score = score_rouge_l<as_it_is, kRecursionLimit>,
                .vectors = {{"rouge_l_pltrdy", recompute_rouge_l<as_it_is, kRecursionLimit>},
                            {"rouge_l", recompute_rouge_l<as_it_is, kRecursionLimit>}}});

}  // namespace kvarena::metrics
