#include "metrics/registry.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

// Inside a function, so that it exists before the first registration of any file.
std::map<std::string, MetricEntry, std::less<>>& registry() {
  static std::map<std::string, MetricEntry, std::less<>> metrics;
  return metrics;
}

}  // namespace

detail::MetricRegistration::MetricRegistration(MetricEntry entry) {
  std::string id = entry.id;
  const bool fresh = registry().emplace(id, std::move(entry)).second;
  KVARENA_ASSERT(fresh, fmt::format("metric \"{}\" is registered twice", id));
}

std::string_view name_of(MetricKind kind) {
  switch (kind) {
    case MetricKind::text: return "text";
    case MetricKind::functional: return "functional";
    case MetricKind::distribution: return "distribution";
    case MetricKind::latency: return "latency";
    case MetricKind::protocol: return "protocol";
  }
  return "";
}

std::string_view name_of(Better better) { return better == Better::higher ? "higher" : "lower"; }

std::vector<const MetricEntry*> all_metrics() {
  std::vector<const MetricEntry*> metrics;
  for (const auto& [id, entry] : registry()) metrics.push_back(&entry);
  return metrics;
}

const MetricEntry& find_metric(std::string_view id) {
  const auto found = registry().find(id);
  if (found != registry().end()) return found->second;
  std::vector<std::string> ids;
  for (const auto& [known, entry] : registry()) ids.push_back(known);
  fail({.place = "metric",
        .found = fmt::format("\"{}\"", id),
        .expected = "the id of a registered metric",
        .nearest = nearest_name(id, ids),
        .action = "`kvarena metrics` lists all"});
}

std::string_view first_line(std::string_view prediction) {
  const std::string_view rest = lstrip_any(prediction, "\n");
  return rest.substr(0, rest.find('\n'));
}

MetricScore score_sample(const MetricEntry& metric, const MetricInput& input) {
  if (metric.score == nullptr) {
    fail({.place = fmt::format("metric \"{}\"", metric.id),
          .found = fmt::format("a {} metric", name_of(metric.kind)),
          .expected = "a metric that scores a prediction against references"});
  }
  try {
    if (!input.extras.value("first_line_only", false)) return metric.score(input);
    return metric.score({first_line(input.prediction), input.references, input.extras});
  } catch (const nlohmann::json::exception& error) {  // an extra of another type than the metric reads
    fail({.place = fmt::format("metric \"{}\": extras", metric.id),
          .found = error.what(),
          .expected = "an object with the members the metric's summary names"});
  }
}

}  // namespace kvarena::metrics
