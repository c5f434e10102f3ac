#include <algorithm>
#include <nlohmann/json.hpp>

#include "metrics/registry.h"
#include "metrics/text/qa_f1.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

MetricScore exact_match(const MetricInput& input) {
  const auto words = normalized_words(input.prediction);
  bool identical = false;
  bool stripped = false;
  bool normalized = false;
  for (const std::string& reference : input.references) {
    identical |= input.prediction == reference;
    stripped |= strip(input.prediction) == strip(reference);
    normalized |= words == normalized_words(reference);
  }
  MetricScore score;
  score.score = input.extras.value("normalize", false) ? normalized : stripped;
  score.values = {{"identical", identical}, {"stripped", stripped}, {"normalized", normalized}};
  return score;
}

}  // namespace

KVARENA_METRIC(
    {.id = "exact_match",
     .title = "Exact match",
     .summary = "1 when the prediction equals a reference, white space at the ends aside; with extras.normalize "
                "when their words are equal after the normalisation of qa_f1. All three readings (identical, "
                "stripped, normalized) are stored.",
     .source = "kvarena; normalisation as SQuAD's",
     .score = exact_match});

}  // namespace kvarena::metrics
