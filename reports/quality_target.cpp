#include "reports/quality_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "reports/chart_specs.h"
#include "reports/emulated.h"
#include "reports/serving_points.h"

namespace kvarena::reports {
namespace {

using nlohmann::json;

constexpr NumberFormat kFixed1{.style = NumberStyle::fixed, .digits = 1};

/// The method of a cell without its settings: "keydiff + lru".
std::string family_of(const results::CellRecord& cell) {
  const json settings = json::parse(cell.settings_json, nullptr, /*allow_exceptions=*/false);
  if (!settings.is_object() || !settings.contains("compress")) return cell.method_name;
  const json& compressor = settings.at("compress");
  const json& name = compressor.is_object() ? compressor.value("name", json()) : compressor;
  return name.is_string() ? fmt::format("{} + {}", name.get<std::string>(), cell.method_name) : cell.method_name;
}

struct Fastest {
  std::string workload, family, point;
  const CellData* cell = nullptr;
  double first_token_ms = 0;
};

/// The fastest setting of each workload, method and load, in the order of the cells.
std::vector<Fastest> fastest_settings(std::span<const CellData* const> cells) {
  std::vector<Fastest> all;
  for (const CellData* cell : cells) {
    const std::string family = family_of(cell->row.cell);
    const double target = score_target(cell->row.cell);
    for (const std::string& point : points_of(*cell)) {
      const double ms = value_of(*cell, metrics::kTimeToFirstTokenSpread.mean.name, point);
      if (!std::isfinite(ms) || !(value_of(*cell, metrics::kServedScore.name, point) >= target)) continue;
      const auto found = std::ranges::find_if(all, [&](const Fastest& one) {
        return one.workload == cell->row.cell.workload && one.family == family && one.point == point;
      });
      Fastest& one = found == all.end() ? all.emplace_back() : *found;
      if (one.cell == nullptr || ms < one.first_token_ms)
        one = {
            .workload = cell->row.cell.workload, .family = family, .point = point, .cell = cell, .first_token_ms = ms};
    }
  }
  return all;
}

double load_of(const std::string& point) {
  double load = NAN;
  std::from_chars(point.data(), point.data() + point.size(), load);
  return load;
}

/// A line a method over the load, of those that reach the target at two of them.
std::vector<LineSeries> target_lines(const std::string& workload, std::span<const Fastest> all) {
  std::map<std::string, LineSeries> lines;
  for (const Fastest& one : all) {
    if (one.workload != workload || !std::isfinite(load_of(one.point))) continue;
    LineSeries& line = lines[one.family];
    line.label = one.family;
    line.emulated = line.emulated || is_emulated(*one.cell, metrics::kTimeToFirstTokenSpread.mean.name);
    line.points.push_back({.x = load_of(one.point), .y = one.first_token_ms});
  }
  std::vector<LineSeries> series;
  for (auto& [family, line] : lines) {
    std::ranges::sort(line.points, {}, &LinePoint::x);
    if (line.points.size() > 1) series.push_back(std::move(line));
  }
  return series;
}

}  // namespace

void add_quality_target(std::span<const CellData* const> cells, Section& section) {
  std::map<std::string, std::set<std::string>> settings;  // by family
  for (const CellData* cell : cells) settings[family_of(cell->row.cell)].insert(cell->row.cell.method);
  if (std::ranges::none_of(settings, [](const auto& each) { return each.second.size() > 1; })) return;
  const std::vector<Fastest> all = fastest_settings(cells);
  if (all.empty()) return;
  Table table{.id = "quality-target",
              .title = "Fastest settings at a quality",
              .caption = fmt::format("Of each method the setting with the least mean time to first token among those "
                                     "whose score under load is at least {:.3g} (serving.score_share).",
                                     score_target(all.front().cell->row.cell)),
              .columns = {{.title = "Workload", .numeric = false},
                          {.title = "Load", .numeric = false},
                          {.title = "Method", .numeric = false},
                          {.title = "Setting", .numeric = false},
                          {.title = "Time to first token", .unit = "ms", .format = kFixed1},
                          {.title = "Between tokens", .unit = "ms", .format = kFixed1},
                          {.title = "Score", .format = {.style = NumberStyle::fixed, .digits = 3}}}};
  std::set<std::string> workloads;
  for (const Fastest& one : all) {
    workloads.insert(one.workload);
    TableCell first = number_cell(one.first_token_ms);
    first.emulated = is_emulated(*one.cell, metrics::kTimeToFirstTokenSpread.mean.name);
    TableCell between = number_cell(value_of(*one.cell, metrics::kInterTokenLatencySpread.mean.name, one.point));
    between.emulated = first.emulated;
    table.rows.push_back({.cells = {text_cell(one.workload), text_cell(one.point), text_cell(one.family),
                                    text_cell(one.cell->row.cell.method), first, between,
                                    number_cell(value_of(*one.cell, metrics::kServedScore.name, one.point))}});
  }
  section.tables.push_back(std::move(table));
  size_t number = 0;
  for (const std::string& workload : workloads) {
    const std::vector<LineSeries> lines = target_lines(workload, all);
    if (lines.empty()) continue;
    section.charts.push_back(line_chart(fmt::format("quality-target-{}", ++number),
                                        fmt::format("At the quality target, {}", workload), {.title = "load"},
                                        {.title = "mean time to first token, ms", .log = true}, lines));
    section.charts.back().caption = section.tables.back().caption;
  }
}

}  // namespace kvarena::reports
