#include <fmt/format.h>
#include <fmt/ranges.h>

#include "metrics/algorithms/jieba.h"
#include "metrics/text/rouge_l.h"

namespace kvarena::metrics {
namespace {

std::string words_joined(std::string_view text) { return fmt::format("{}", fmt::join(jieba().cut(text), " ")); }

constexpr int64_t kRecursionLimit = 990;  // steps, one fewer than rouge_l: the scorer is one call deeper

}  // namespace

KVARENA_METRIC(
    {.id = "rouge_l_zh",
     .title = "ROUGE-L (pltrdy), Chinese",
     .version = 2,
     .summary = "rouge_l over the words jieba 0.42.1 cuts. Chinese full stops do not end sentences. Needs jieba's "
                "data in $KVARENA_HOME/jieba.",
     .source = "THUDM/LongBench @2e00731f LongBench/metrics.py rouge_zh_score",
     .score = score_rouge_l<words_joined, kRecursionLimit>,
     .data = jieba_files,
     .vectors = {{"rouge_l_zh", recompute_rouge_l<words_joined, kRecursionLimit>}}});

}  // namespace kvarena::metrics
