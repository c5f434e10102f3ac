#pragma once
// ROUGE-L of LongBench, over texts as they are or cut into words first.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "metrics/algorithms/rouge.h"
#include "metrics/registry.h"

namespace kvarena::metrics {

/// Prepares prediction and reference before they are split into tokens.
using PrepareText = std::string (*)(std::string_view);

/// The value that LongBench's scorer writes: 0 from the step of backtracking on at which it meets CPython's recursion
/// limit of 1000 calls (3.11 to 3.13).
inline double with_recursion_limit(const RougeScore& score, int64_t limit) {
  return score.backtrack_steps >= limit ? 0.0 : score.f;
}

/// Best over the references; values: the formula's value without that limit, with its precision and recall.
template <PrepareText prepare, int64_t limit>
MetricScore score_rouge_l(const MetricInput& input) {
  MetricScore best;
  RougeScore formula;
  const std::string prediction = prepare(input.prediction);
  for (const std::string& reference : input.references) {
    const RougeScore score = pltrdy_rouge_l(prediction, prepare(reference));
    best.score = std::max(best.score, with_recursion_limit(score, limit));
    if (score.f >= formula.f) formula = score;
  }
  best.values = {{"precision", formula.precision}, {"recall", formula.recall}, {"without_recursion_limit", formula.f}};
  return best;
}

template <PrepareText prepare, int64_t limit>
nlohmann::json recompute_rouge_l(const nlohmann::json& row, const VectorContext&) {
  const std::string prediction = prepare(row.at("prediction").get_ref<const std::string&>());
  nlohmann::json per_answer = nlohmann::json::array();
  double official = 0;
  double formula = 0;
  for (const auto& answer : row.at("answers")) {
    const RougeScore score = pltrdy_rouge_l(prediction, prepare(answer.get_ref<const std::string&>()));
    per_answer.push_back(with_recursion_limit(score, limit));
    official = std::max(official, with_recursion_limit(score, limit));
    formula = std::max(formula, score.f);
  }
  return {{"expected_per_answer", std::move(per_answer)},
          {"expected", official},
          {"expected_without_recursion_limit", formula}};
}

}  // namespace kvarena::metrics
