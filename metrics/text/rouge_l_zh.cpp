#include <fmt/format.h>
#include <fmt/ranges.h>

#include "metrics/algorithms/jieba.h"
#include "metrics/algorithms/rouge.h"
#include "metrics/per_answer.h"

namespace kvarena {
namespace {

std::string words_joined(std::string_view text) { return fmt::format("{}", fmt::join(jieba().cut(text), " ")); }

double rouge_l_zh_of(std::string_view prediction, std::string_view answer, const nlohmann::json&) {
  return pltrdy_rouge_l(words_joined(prediction), words_joined(answer)).f;
}

}  // namespace

KVARENA_METRIC(
    {.id = "rouge_l_zh",
     .title = "ROUGE-L (pltrdy), Chinese",
     .summary = "rouge_l over the words jieba 0.42.1 cuts. Chinese full stops do not end sentences. Needs jieba's "
                "data in $KVARENA_HOME/jieba.",
     .source = "THUDM/LongBench @2e00731f LongBench/metrics.py rouge_zh_score",
     .score = best_over_references<rouge_l_zh_of>,
     .vectors = {{"rouge_l_zh", recompute_per_answer<rouge_l_zh_of>}}});

}  // namespace kvarena
