#pragma once
// Scores of one answer.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "metrics/registry.h"

namespace kvarena::metrics {

inline MetricScore score(const char* metric, const std::string& prediction, const std::vector<std::string>& references,
                         const nlohmann::json& extras = nlohmann::json::object()) {
  return score_sample(find_metric(metric), {prediction, references, extras});
}

}  // namespace kvarena::metrics
