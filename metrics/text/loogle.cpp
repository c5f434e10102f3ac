#include <algorithm>

#include "metrics/algorithms/bleu.h"
#include "metrics/algorithms/rouge.h"
#include "metrics/registry.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

MetricScore score_one(std::string_view prediction, std::string_view reference) {
  const RougeScore longest = pltrdy_rouge_l(prediction, reference);
  if (!longest.defined) return {};
  const auto words = split_white_space(prediction);
  const auto wanted = split_white_space(reference);
  return {longest.recall,
          {{"rouge_1_recall", pltrdy_rouge_n(prediction, reference, 1).recall},
           {"rouge_2_recall", pltrdy_rouge_n(prediction, reference, 2).recall},
           {"bleu_1", ngram_bleu(words, wanted, 1)},
           {"bleu_4", ngram_bleu(words, wanted, 4)}},
          {}};
}

MetricScore score(const MetricInput& input) {
  MetricScore best;
  for (const std::string& reference : input.references) {
    MetricScore one = score_one(input.prediction.empty() ? "None" : input.prediction, reference);
    if (best.values.empty() || one.score > best.score) best = std::move(one);
  }
  return best;
}

}  // namespace

KVARENA_METRIC(
    {.id = "loogle",
     .title = "LooGLE, ROUGE-L recall",
     .summary = "Recall of ROUGE-L of the Python package rouge 1.0.1, with that of ROUGE-1 and 2 and BLEU-1 and "
                "4 of nltk beside it; an empty answer is \"None\". METEOR and BERTScore are not computed.",
     .source = "bigai-nlco/LooGLE @6734382 Evaluation/automatic_metrics.py",
     .score = score});

}  // namespace kvarena::metrics
