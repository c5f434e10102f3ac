#pragma once
// Metrics defined on one prediction and one answer, of which a sample takes the best over its answers (LongBench 2.7).

#include <algorithm>
#include <nlohmann/json.hpp>

#include "metrics/registry.h"

namespace kvarena::metrics {

/// The score of a prediction against one answer, in [0, 1].
using AnswerFunction = double (*)(std::string_view prediction, std::string_view answer, const nlohmann::json& extras);

/// max over references, starting at 0; values["best_reference"] is the index of the first best one.
template <AnswerFunction metric>
MetricScore best_over_references(const MetricInput& input) {
  MetricScore result;
  for (size_t i = 0; i < input.references.size(); ++i) {
    const double score = metric(input.prediction, input.references[i], input.extras);
    if (score > result.score || i == 0) {
      result.score = std::max(score, 0.0);
      result.values["best_reference"] = static_cast<double>(i);
    }
  }
  return result;
}

/// {"prediction", "answers"} -> {"expected", "expected_per_answer"}; the row itself serves as extras.
template <AnswerFunction metric>
nlohmann::json recompute_per_answer(const nlohmann::json& row, const VectorContext&) {
  nlohmann::json scores = nlohmann::json::array();
  double best = 0;
  for (const auto& answer : row.at("answers")) {
    const double score =
        metric(row.at("prediction").get_ref<const std::string&>(), answer.get_ref<const std::string&>(), row);
    best = std::max(best, score);
    scores.push_back(score);
  }
  return {{"expected_per_answer", std::move(scores)}, {"expected", best}};
}

}  // namespace kvarena::metrics
