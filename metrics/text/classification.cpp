#include <fmt/format.h>

#include "harness/core/error.h"
#include "metrics/per_answer.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

std::vector<std::string> classes_from(const nlohmann::json& extras) {
  const auto found = extras.find("all_classes");
  if (found != extras.end() && found->is_array()) return found->get<std::vector<std::string>>();
  fail({.place = "metric \"classification\": extras.all_classes",
        .found = found == extras.end() ? "nothing" : found->dump(),
        .expected = "a list of class names",
        .action = "LongBench rows carry it as all_classes"});
}

double classification_of(std::string_view prediction, std::string_view answer, const nlohmann::json& extras) {
  std::vector<std::string> hits = classes_from(extras);
  std::erase_if(hits, [&](const std::string& name) { return !contains(prediction, name); });
  // The official loop removes from the list it walks over, so each removal skips the next element. Scores depend on it.
  for (size_t i = 0; i < hits.size(); ++i) {
    if (hits[i] == answer || !contains(answer, hits[i])) continue;
    hits.erase(std::find(hits.begin(), hits.end(), std::string(hits[i])));
  }
  if (std::find(hits.begin(), hits.end(), answer) == hits.end()) return 0.0;
  return 1.0 / static_cast<double>(hits.size());
}

}  // namespace

KVARENA_METRIC({.id = "classification",
                .title = "Few-shot classification",
                .summary = "1 over the number of class names found in the prediction when the answer is among them, "
                           "else 0; class names inside the answer's own name are dropped first. Needs all_classes.",
                .source = "THUDM/LongBench @2e00731f LongBench/metrics.py classification_score",
                .score = best_over_references<classification_of>,
                .vectors = {{"classification", recompute_per_answer<classification_of>}}});

}  // namespace kvarena::metrics
