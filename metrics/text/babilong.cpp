#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/core/error.h"
#include "metrics/registry.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

/// The first sentence of an answer, before any context or example that it makes up.
std::string first_sentence(std::string_view prediction) {
  std::string text = lower(prediction);
  for (const char* end : {".", "<context>", "<example>"}) text = text.substr(0, text.find(end));
  return text;
}

/// Labels that stand in `text`, in lower case.
std::set<std::string> labels_in(const std::string& text, const std::vector<std::string>& labels) {
  std::set<std::string> found;
  for (const std::string& label : labels) {
    if (std::string name = lower(label); text.find(name) != std::string::npos) found.insert(std::move(name));
  }
  return found;
}

MetricScore babilong(const MetricInput& input) {
  for (const char* member : {"question", "labels"}) {
    if (input.extras.contains(member)) continue;
    fail({.place = fmt::format("metric \"babilong\": extras.{}", member),
          .found = "nothing",
          .expected = "the question, and the list of the task's answers as labels"});
  }
  const auto labels = input.extras["labels"].get<std::vector<std::string>>();
  std::set<std::string> answered = labels_in(first_sentence(input.prediction), labels);
  for (const std::string& asked : labels_in(lower(input.extras["question"].get<std::string>()), labels))
    answered.erase(asked);
  const auto is_right = [&](const std::string& reference) {
    const std::string target = lower(reference);
    if (target.size() <= 3 || target.find(',') == std::string::npos) return answered == std::set<std::string>{target};
    const std::vector<std::string> parts = split_on(target, ",");
    return answered.size() == parts.size() &&
           std::ranges::all_of(parts, [&](const std::string& part) { return answered.contains(part); });
  };
  return {std::ranges::any_of(input.references, is_right) ? 1.0 : 0.0, {}, {}};
}

}  // namespace

KVARENA_METRIC({.id = "babilong",
                .title = "BABILong accuracy",
                .summary = "1 when the answer's first sentence has the gold label and no other of the task's, but for "
                           "those of the question. Needs question and labels.",
                .source = "booydar/babilong @7a6efee babilong/metrics.py",
                .score = babilong});

}  // namespace kvarena::metrics
