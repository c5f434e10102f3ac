#include "metrics/vectors.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/algorithms/python_json.h"
#include "metrics/jsonl.h"
#include "metrics/registry.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;

/// The metric whose function recomputes rows of this name.
const MetricEntry& metric_of(const std::string& metric) {
  std::vector<std::string> known;
  for (const MetricEntry* entry : all_metrics()) {
    if (entry->vectors.contains(metric)) return *entry;
    for (const auto& [name, function] : entry->vectors) known.push_back(name);
  }
  fail({.place = "metric",
        .found = fmt::format("\"{}\"", metric),
        .expected = "a metric that test vectors exist for",
        .nearest = nearest_name(metric, known)});
}

std::string shown(const json& value) {
  return value.is_number_float() && std::isnan(value.get<double>()) ? "NaN" : value.dump();
}

class Comparison {
 public:
  Comparison(std::string place, double tolerance, std::vector<VectorMismatch>& mismatches)
      : place_(std::move(place)), tolerance_(tolerance), mismatches_(mismatches) {}

  void compare(const std::string& field, const json& expected, const json& found) const {
    if (expected.is_object() && found.is_object()) return compare_objects(field, expected, found);
    if (expected.is_array() && found.is_array() && expected.size() == found.size()) {
      for (size_t i = 0; i < expected.size(); ++i) compare(fmt::format("{}[{}]", field, i), expected[i], found[i]);
      return;
    }
    if (!same(expected, found)) mismatches_.push_back({place_, field, shown(expected), shown(found)});
  }

  void missing(const std::string& field, const json& expected) const {
    mismatches_.push_back({place_, field, expected.dump(), "nothing"});
  }

 private:
  [[nodiscard]] bool same(const json& expected, const json& found) const {
    if (!expected.is_number() || !found.is_number()) return expected == found;
    const auto a = expected.get<double>();
    const auto b = found.get<double>();
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return a == b || std::abs(a - b) <= tolerance_;
  }

  void compare_objects(const std::string& field, const json& expected, const json& found) const {
    for (const auto& [key, value] : expected.items()) {
      const auto member = found.find(key);
      const std::string name = field + "." + key;
      member == found.end() ? missing(name, value) : compare(name, value, *member);
    }
    for (const auto& [key, value] : found.items()) {
      if (!expected.contains(key)) mismatches_.push_back({place_, field + "." + key, "nothing", value.dump()});
    }
  }

  std::string place_;
  double tolerance_;
  std::vector<VectorMismatch>& mismatches_;
};

}  // namespace

VectorReport check_vectors(const std::filesystem::path& file, const VectorOptions& options) {
  VectorReport report;
  VectorContext context{options.data_folder.empty() ? file.parent_path().parent_path() : options.data_folder, {}};
  for_each_line(file, [&](std::string_view line, int64_t number) {
    const json row = parse_python_json(line);
    context.row_text = line;
    const auto name = row.at("metric").get<std::string>();
    const MetricEntry& metric = metric_of(name);
    const json found = metric.vectors.at(name)(row, context);
    const std::string id = row.value("id", "");
    const Comparison comparison(fmt::format("{}:{} {}", file.filename().string(), number, id), options.tolerance,
                                report.mismatches);
    ++report.rows;
    ++report.rows_of[metric.id];
    for (const auto& [key, expected] : row.items()) {
      if (!key.starts_with("expected")) continue;
      const auto member = found.find(key);
      member == found.end() ? comparison.missing(key, expected) : comparison.compare(key, expected, *member);
    }
  });
  return report;
}

}  // namespace kvarena::metrics
