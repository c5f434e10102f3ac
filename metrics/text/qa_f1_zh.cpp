#include "metrics/algorithms/chinese_text.h"
#include "metrics/algorithms/jieba.h"
#include "metrics/per_answer.h"
#include "metrics/text/qa_f1.h"

namespace kvarena::metrics {
namespace {

// Each word is normalised alone; words of nothing but punctuation vanish.
std::vector<std::string> normalized_words_zh(std::string_view text) {
  std::vector<std::string> words;
  for (const std::string& word : jieba().cut(text)) {
    if (std::string normalized = normalized_chinese(word); !normalized.empty()) words.push_back(std::move(normalized));
  }
  return words;
}

double qa_f1_zh_of(std::string_view prediction, std::string_view answer, const nlohmann::json&) {
  return bag_f1(normalized_words_zh(prediction), normalized_words_zh(answer)).f;
}

}  // namespace

KVARENA_METRIC(
    {.id = "qa_f1_zh",
     .title = "Answer token F1, Chinese",
     .summary = "qa_f1 over the words jieba 0.42.1 cuts, each lower-cased and stripped of punctuation. Needs "
                "jieba's data in $KVARENA_HOME/jieba.",
     .source = "THUDM/LongBench @2e00731f LongBench/metrics.py qa_f1_zh_score",
     .score = best_over_references<qa_f1_zh_of>,
     .data = jieba_files,
     .vectors = {{"qa_f1_zh", recompute_per_answer<qa_f1_zh_of>}}});

}  // namespace kvarena::metrics
