#pragma once
// ROUGE-L of LongBench, over texts as they are or cut into words first.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "metrics/algorithms/rouge.h"
#include "metrics/registry.h"

namespace kvarena::metrics {

/// Steps of backtracking from which CPython's recursion limit of 1000 may have stopped the official code.
constexpr int64_t kRecursionSteps = 900;

/// Prepares prediction and reference before they are split into tokens.
using PrepareText = std::string (*)(std::string_view);

/// Best over the references; values: precision, recall, official_recursion_risk.
template <PrepareText prepare>
MetricScore score_rouge_l(const MetricInput& input) {
  MetricScore best;
  const std::string prediction = prepare(input.prediction);
  for (const std::string& reference : input.references) {
    const RougeScore score = pltrdy_rouge_l(prediction, prepare(reference));
    if (score.f >= best.score) {
      best.score = score.f;
      best.values["precision"] = score.precision;
      best.values["recall"] = score.recall;
    }
    double& risk = best.values["official_recursion_risk"];
    if (score.backtrack_steps >= kRecursionSteps) risk = 1;
  }
  return best;
}

/// A row marked recursion_limited holds the official 0 in `expected` and the value of the formula beside it.
template <PrepareText prepare>
nlohmann::json recompute_rouge_l(const nlohmann::json& row, const VectorContext&) {
  const bool limited = row.value("recursion_limited", false);
  const std::string prediction = prepare(row.at("prediction").get_ref<const std::string&>());
  nlohmann::json per_answer = nlohmann::json::array();
  double official = 0;
  double formula = 0;
  for (const auto& answer : row.at("answers")) {
    const RougeScore score = pltrdy_rouge_l(prediction, prepare(answer.get_ref<const std::string&>()));
    const double kept = limited && score.backtrack_steps >= kRecursionSteps ? 0.0 : score.f;
    per_answer.push_back(kept);
    official = std::max(official, kept);
    formula = std::max(formula, score.f);
  }
  return {{"expected_per_answer", std::move(per_answer)},
          {"expected", official},
          {"expected_without_recursion_limit", formula}};
}

}  // namespace kvarena::metrics
