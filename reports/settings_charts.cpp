#include "reports/settings_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "reports/chart_specs.h"
#include "reports/emulated.h"
#include "reports/escape.h"
#include "reports/method_settings.h"
#include "reports/metric_look.h"
#include "reports/pooled.h"
#include "reports/timing.h"
#include "reports/verdict.h"

namespace kvarena::reports {
namespace {

using nlohmann::json;

/// The numeric settings that are not the same in all of them, with their values; nothing when any other setting varies.
std::optional<std::map<std::string, std::set<double>>> varying(const std::vector<Asked>& methods) {
  std::set<std::string> keys;
  for (const Asked& method : methods) {
    for (const auto& [key, value] : method.settings.items()) keys.insert(key);
  }
  std::map<std::string, std::set<double>> found;
  for (const std::string& key : keys) {
    std::set<json> values;
    for (const Asked& method : methods) values.insert(method.settings.value(key, json()));
    if (values.size() == 1) continue;
    for (const json& value : values) {
      if (!value.is_number()) return std::nullopt;
      found[key].insert(value.get<double>());
    }
  }
  return found;
}

std::optional<Chart> grid_of(const ExperimentData& data, const std::string& name, const std::vector<Asked>& methods,
                             const std::string& workload) {
  const auto settings = varying(methods);
  if (!settings || settings->size() != 2) return std::nullopt;
  const auto& [x, columns] = *settings->begin();
  const auto& [y, rows] = *std::next(settings->begin());
  if (columns.size() * rows.size() != methods.size()) return std::nullopt;
  const std::string metric = primary_metric(data, workload);
  const MetricLook look = look_of(data, metric);
  std::map<std::pair<double, double>, double> grid;  // rows before columns: both come out ascending
  for (const Asked& method : methods) {
    const CellData* cell = data.find(method.label, workload, results::CellKind::quality);
    if (cell == nullptr || !cell->counts() || !cell->values->contains(metric)) continue;
    const std::vector<double> values = cell->numbers(metric);
    double sum = 0;
    for (const double value : values) sum += value;
    grid[{method.settings[y].get<double>(), method.settings[x].get<double>()}] =
        look.scale * sum / static_cast<double>(values.size());
  }
  if (grid.size() != methods.size()) return std::nullopt;
  std::vector<HeatCell> cells;
  for (const auto& [place, value] : grid) {
    cells.push_back({fmt::format("{:g}", place.second), fmt::format("{:g}", place.first), value});
  }
  Chart chart = heat_map(fmt::format("grid-{}-{}", slug(name), slug(workload)), fmt::format("{}: {}", workload, name),
                         x, y, look.unit.empty() ? metric : metric + ", " + look.unit, cells);
  chart.caption = "Means over samples, measured.";
  return chart;
}

/// A line for each group of drafting methods of which two lengths have values: their means, of cells of that kind.
template <typename ValuesOf>
std::vector<LineSeries> along_lengths(const ExperimentData& data, results::CellKind kind, const std::string& metric,
                                      const ValuesOf& values_of) {
  std::vector<LineSeries> lines;
  for (const DraftingMethods& group : drafting_methods(data)) {
    LineSeries line{.label = group.label};
    for (const auto& [length, method] : group.lengths) {
      const std::vector<double> values = values_of(method);
      if (values.empty()) continue;
      line.emulated = line.emulated || is_emulated(data, method, kind, metric);
      const metrics::MeanEstimate estimate = metrics::bootstrap_mean(values, resampling_for(values.size()));
      line.points.push_back({.x = static_cast<double>(length), .y = estimate.mean});
      if (values.size() > 1) line.points.back().interval = estimate.interval;
    }
    if (line.points.size() > 1) lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

std::vector<Chart> drafting_charts(const ExperimentData& data) {
  std::vector<Chart> charts;
  const std::string length = metrics::kAcceptanceLength.name, rate = metrics::kThroughputTokensPerS.name;
  const auto accepted = along_lengths(data, results::CellKind::quality, length, [&](const std::string& method) {
    return pool_of(data, method, results::CellKind::quality, length).values;
  });
  if (!accepted.empty()) {
    charts.push_back(line_chart("acceptance", "Accepted tokens by draft length", {.title = "tokens drafted a round"},
                                {.title = "accepted of them, mean over samples", .zero = true}, accepted));
    charts.back().caption =
        "Measured. The correction or bonus token of a round does not count. Bands are 95% intervals over samples.";
  }
  const auto faster = along_lengths(data, results::CellKind::timing, rate, [&](const std::string& method) {
    const auto test = time_test(data, method, rate);
    return test ? std::vector<double>{test->ratio} : std::vector<double>{};
  });
  if (!faster.empty()) {
    charts.push_back(line_chart("draft-speedup", "Speed-up by draft length", {.title = "tokens drafted a round"},
                                {.title = fmt::format("tokens/s over those of {}", data.baseline()), .zero = true},
                                faster));
    charts.back().caption = "Measured. Medians of repeats over the baseline's, geometric mean over timed samples.";
  }
  return charts;
}

std::vector<Chart> settings_grids(const ExperimentData& data) {
  std::vector<Chart> charts;
  for (const auto& [name, methods] : methods_by_name(data)) {
    for (const std::string& workload : data.workloads()) {
      if (auto chart = grid_of(data, name, methods, workload)) charts.push_back(std::move(*chart));
    }
  }
  return charts;
}

}  // namespace kvarena::reports
