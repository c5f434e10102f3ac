#include "metrics/text/rouge_l.h"

namespace kvarena::metrics {
namespace {

std::string as_it_is(std::string_view text) { return std::string(text); }

}  // namespace

KVARENA_METRIC({.id = "rouge_l",
                .title = "ROUGE-L (pltrdy)",
                .summary = "Summary-level ROUGE-L over sets of words, sentences cut at full stops, case kept, as the "
                           "Python package rouge 1.0.1 computes it; best over the answers. Where that package stops at "
                           "Python's recursion limit (and LongBench writes 0) this is the value of the formula; such "
                           "samples carry official_recursion_risk = 1.",
                .source = "pltrdy/rouge @c1b90a78 rouge_l_summary_level; THUDM/LongBench @2e00731f rouge_score",
                .score = score_rouge_l<as_it_is>,
                .vectors = {{"rouge_l_pltrdy", recompute_rouge_l<as_it_is>},
                            {"rouge_l", recompute_rouge_l<as_it_is>}}});

}  // namespace kvarena::metrics
