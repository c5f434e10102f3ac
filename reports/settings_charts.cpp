#include "reports/settings_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "reports/chart_specs.h"
#include "reports/escape.h"
#include "reports/metric_look.h"
#include "reports/pooled.h"
#include "reports/verdict.h"

namespace kvarena::reports {
namespace {

using nlohmann::json;

/// One method of the experiment as it was asked for.
struct Asked {
  std::string label;
  json settings;
};

/// The experiment's methods by the name they are registered under, in their order.
std::map<std::string, std::vector<Asked>> by_name(const ExperimentData& data) {
  std::map<std::string, std::vector<Asked>> methods;
  for (const std::string& label : data.methods()) {
    const auto cell =
        std::ranges::find_if(data.cells, [&](const CellData& each) { return each.row.cell.method == label; });
    if (cell == data.cells.end()) continue;
    json settings = json::parse(cell->row.cell.settings_json, nullptr, /*allow_exceptions=*/false);
    if (settings.is_object()) methods[cell->row.cell.method_name].push_back({label, std::move(settings)});
  }
  return methods;
}

/// The beginning that labels share: "KIVI, x = 5" and "KIVI, x = 10" are "KIVI".
std::string common_label(const std::vector<std::string>& labels, const std::string& otherwise) {
  std::string common = labels.front();
  for (const std::string& label : labels) {
    const auto [end, rest] = std::ranges::mismatch(common, label);
    common.erase(end, common.end());
  }
  if (const size_t last = common.find_last_of(",("); last != std::string::npos) common.erase(last);
  while (!common.empty() && (common.back() == ' ' || common.back() == '=')) common.pop_back();
  return common.empty() ? otherwise : common;
}

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
    if (cell == nullptr || !cell->counts() || !cell->values.contains(metric)) continue;
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

}  // namespace

std::vector<Chart> acceptance_charts(const ExperimentData& data) {
  constexpr const char* kLength = "draft_length";
  std::vector<LineSeries> lines;
  for (const auto& [name, methods] : by_name(data)) {
    std::map<std::string, std::vector<Asked>> alike;  // by all other settings
    for (const Asked& method : methods) {
      if (!method.settings.contains(kLength) || !method.settings[kLength].is_number()) continue;
      json others = method.settings;
      others.erase(kLength);
      alike[others.dump()].push_back(method);
    }
    for (const auto& [settings, group] : alike) {
      LineSeries line;
      std::vector<std::string> labels;
      for (const Asked& method : group) {
        const std::vector<double> lengths =
            pool_of(data, method.label, results::CellKind::quality, metrics::kAcceptanceLength.name).values;
        if (lengths.empty()) continue;
        const metrics::MeanEstimate estimate = metrics::bootstrap_mean(lengths, resampling_for(lengths.size()));
        line.points.push_back({.x = method.settings[kLength].get<double>(), .y = estimate.mean});
        if (lengths.size() > 1) line.points.back().interval = estimate.interval;
        labels.push_back(method.label);
      }
      if (line.points.size() < 2) continue;
      std::ranges::sort(line.points, {}, &LinePoint::x);
      line.label = common_label(labels, name);
      lines.push_back(std::move(line));
    }
  }
  if (lines.empty()) return {};
  Chart chart = line_chart("acceptance", "Accepted tokens by draft length", {.title = "tokens drafted a round"},
                           {.title = "accepted of them, mean over samples", .zero = true}, lines);
  chart.caption =
      "Measured. The correction or bonus token of a round does not count. Bands are 95% intervals over samples.";
  return {chart};
}

std::vector<Chart> settings_grids(const ExperimentData& data) {
  std::vector<Chart> charts;
  for (const auto& [name, methods] : by_name(data)) {
    for (const std::string& workload : data.workloads()) {
      if (auto chart = grid_of(data, name, methods, workload)) charts.push_back(std::move(*chart));
    }
  }
  return charts;
}

}  // namespace kvarena::reports
