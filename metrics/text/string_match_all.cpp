#include <nlohmann/json.hpp>

#include "metrics/algorithms/ruler.h"
#include "metrics/registry.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

MetricScore score(const MetricInput& input) { return {string_match_all(input.prediction, input.references), {}, {}}; }

// A row is a whole task: mean over predictions times 100, rounded; question answering takes the part rule.
nlohmann::json recompute(const nlohmann::json& row, const VectorContext&) {
  const auto predictions = row.at("predictions").get<std::vector<std::string>>();
  const auto references = row.at("references").get<std::vector<std::vector<std::string>>>();
  const bool part = row.at("task").get<std::string>().starts_with("qa");
  double sum = 0;
  for (size_t i = 0; i < predictions.size(); ++i) {
    sum +=
        part ? string_match_part(predictions[i], references.at(i)) : string_match_all(predictions[i], references.at(i));
  }
  return {{"expected", python_round(sum / static_cast<double>(predictions.size()) * 100, 2)}};
}

}  // namespace

KVARENA_METRIC(
    {.id = "string_match_all",
     .title = "RULER string match, all",
     .summary = "Share of the references that occur in the prediction, case aside. Matches inside longer words "
                "and numbers count.",
     .source = "NVIDIA/RULER @c3f5e3b4 scripts/eval/synthetic/constants.py",
     .score = score,
     .vectors = {{"ruler", recompute}}});

}  // namespace kvarena::metrics
