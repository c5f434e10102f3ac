// Policies that place stored contexts: a row a method and point.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "reports/chart_specs.h"
#include "reports/context_lengths.h"
#include "reports/emulated.h"
#include "reports/equal_quality.h"
#include "reports/escape.h"
#include "reports/metric_look.h"
#include "reports/quality_target.h"
#include "reports/sections.h"
#include "reports/serving_points.h"

namespace kvarena::reports {
namespace {

using nlohmann::json;

constexpr NumberFormat kFixed1{.style = NumberStyle::fixed, .digits = 1};

constexpr MetricColumn kColumns[] = {
    {metrics::kServedScore, {}, "Similarity"},
    {metrics::kTimeToFirstTokenSpread.mean, kFixed1, "mean", "Time to first token"},
    {metrics::kTimeToFirstTokenSpread.p99, kFixed1, "p99", "Time to first token"},
    {metrics::kDeviceHits, {}, "on the device", "Found"},
    {metrics::kMemoryHits, {}, "in memory", "Found"},
    {metrics::kDiskHits, {}, "on disk", "Found"},
    {metrics::kRemoteHits, {}, "remote", "Found"},
    {metrics::kRecomputedContexts, {}, "computed anew", "Found"},
    {metrics::kCacheLoadMs, kFixed1, "loaded", "Cache"},
    {metrics::kCacheRestoreMs, kFixed1, "restored", "Cache"},
    {metrics::kKeepOnDevice, {}, "on the device", "Kept"},
    {metrics::kKeepInMemory, {}, "in memory", "Kept"},
    {metrics::kKeepOnDisk, {}, "on disk", "Kept"},
    {metrics::kLostUtility, {}, "Below the optimum"},
    {metrics::kReprofiledContexts, kFixed1, "Profiled anew"},
    {metrics::kFirstTokenBeforeProfilings, kFixed1, "before", "p99 of time to first token, profiling anew"},
    {metrics::kFirstTokenWhileProfiling, kFixed1, "meanwhile", "p99 of time to first token, profiling anew"},
    {metrics::kFirstTokenAfterProfilings, kFixed1, "after", "p99 of time to first token, profiling anew"},
};

/// Columns of a table; those of the device where contexts lie there.
std::vector<MetricColumn> columns_of(const ExperimentData& data) {
  const bool device = std::ranges::any_of(
      data.cells, [](const CellData& cell) { return cell.values->contains(metrics::kDeviceHits.name); });
  std::vector<MetricColumn> columns(std::begin(kColumns), std::end(kColumns));
  if (device) return columns;
  std::erase_if(columns, [](const MetricColumn& column) {
    return column.metric.name == std::string_view(metrics::kDeviceHits.name) ||
           column.metric.name == std::string_view(metrics::kKeepOnDevice.name);
  });
  return columns;
}

TableRow row_of(const ExperimentData& data, const CellData& cell, const std::string& point,
                std::span<const MetricColumn> columns, const std::vector<MetricLook>& looks) {
  TableRow row{.cells = {text_cell(cell.row.cell.method), text_cell(cell.row.cell.workload), text_cell(point)},
               .role = cell.row.cell.method == data.baseline() ? RowRole::baseline : RowRole::ordinary};
  for (size_t i = 0; i < columns.size(); ++i) {
    const double value = value_of(cell, columns[i].metric.name, point);
    TableCell& number = row.cells.emplace_back();
    if (!std::isfinite(value)) continue;
    number = number_cell(looks[i].scale * value);
    mark_origin(number, cell.values->at(columns[i].metric.name));
  }
  return row;
}

/// Similarity over time to first token of every point, a chart a workload: the paper's Figure 7.
void add_trade_offs(const std::vector<const CellData*>& cells, const ExperimentData& data, Section& section) {
  size_t number = 0;
  for (const std::string& workload : data.workloads()) {
    std::vector<ScatterPoint> points;
    for (const CellData* cell : cells) {
      if (cell->row.cell.workload != workload) continue;
      for (const std::string& point : points_of(*cell)) {
        const double x = value_of(*cell, metrics::kTimeToFirstTokenSpread.mean.name, point);
        const double y = value_of(*cell, metrics::kServedScore.name, point);
        if (!std::isfinite(x) || !std::isfinite(y)) continue;
        points.push_back({.series = cell->row.cell.method,
                          .label = fmt::format("{}, {}", cell->row.cell.method, point),
                          .x = x,
                          .y = y,
                          .baseline = cell->row.cell.method == data.baseline(),
                          .emulated = is_emulated(*cell, metrics::kTimeToFirstTokenSpread.mean.name)});
      }
    }
    if (points.size() < 2) continue;
    ++number;
    constexpr const char* kTime = "mean time to first token, ms";
    if (auto table = equal_quality_table(fmt::format("contexts-equal-{}", number), kTime, "Similarity", points)) {
      table->title += ", " + workload;
      section.tables.push_back(std::move(*table));
    }
    mark_pareto_front(points);
    section.charts.push_back(scatter_chart(fmt::format("contexts-{}", number),
                                           fmt::format("Answers against time to first token, {}", workload),
                                           {.title = kTime}, {.title = "similarity to full KV's answers"}, points));
  }
}

constexpr size_t kWindow = 10;  // requests of a running mean

/// Values by the time of their request's answer, in seconds, in the order of time; those of no answer are left out.
using Timed = std::vector<std::pair<double, double>>;

Timed in_time(const CellData& cell, const metrics::StoredSeries& what) {
  Timed timed;
  const std::vector<std::string> points = points_of(cell);
  if (points.empty()) return timed;
  const std::vector<float> at = series_of(cell, metrics::kAnsweredMs.name, points.back());
  const std::vector<float> values = what.name == std::string_view(metrics::kTimeToFirstTokenMs.name)
                                        ? first_token_by_request(cell, points.back())
                                        : series_of(cell, what.name, points.back());
  if (values.size() != at.size()) return timed;
  for (size_t r = 0; r < at.size(); ++r) {
    if (std::isfinite(at[r])) timed.emplace_back(at[r] / 1e3, values[r]);
  }
  std::ranges::stable_sort(timed, {}, &Timed::value_type::first);
  return timed;
}

/// The mean over the newest `window` values, at each from the window's end on.
std::vector<LinePoint> running_mean(const Timed& values, size_t window) {
  std::vector<LinePoint> points;
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += values[i].second;
    if (i >= window) sum -= values[i - window].second;
    if (i + 1 >= window) points.push_back({.x = values[i].first, .y = sum / static_cast<double>(window)});
  }
  return points;
}

/// Seconds at which a method profiled contexts anew at the last load.
std::vector<double> profilings(std::span<const CellData* const> cells, const std::string& workload) {
  std::vector<double> times;
  for (const CellData* cell : cells) {
    const std::vector<std::string> points = points_of(*cell);
    for (const results::EventRow& row : cell->events) {
      if (cell->row.cell.workload == workload && row.sample_id == points.back() && row.event.at_ms &&
          row.event.event == metrics::kContextProfiled)
        times.push_back(*row.event.at_ms / 1e3);
    }
  }
  return times;
}

/// A quantity by the time of the run, a line a method at the last load, with rules where contexts were profiled anew:
/// the paper's Figure 10. Methods whose every answer is full KV's are left out of similarity.
std::vector<Chart> over_time_charts(const std::vector<const CellData*>& cells, const ExperimentData& data,
                                    const metrics::StoredSeries& what, const std::string& title,
                                    const std::string& axis) {
  const bool similarity = what.name == std::string_view(metrics::kAnswerSimilarity.name);
  const auto line = [&](const CellData& cell) {
    LineSeries one{.label = cell.row.cell.method, .emulated = is_emulated(cell, what.name)};
    const Timed values = in_time(cell, what);
    if (!similarity || std::ranges::any_of(values, [](const auto& each) { return each.second < 1; }))
      one.points = running_mean(values, kWindow);
    return one;
  };
  return charts_by_workload(
      data, cells, line, [&](size_t number, const std::string& workload, const std::vector<LineSeries>& lines) {
        Chart chart =
            line_chart(fmt::format("{}-{}", slug(title), number), fmt::format("{} over time, {}", title, workload),
                       {.title = "seconds of the run", .marks = profilings(cells, workload)},
                       {.title = fmt::format("{}, mean of {} requests", axis, kWindow)}, lines);
        chart.caption = "Measured, at each answer. Rules: a context was profiled anew.";
        return chart;
      });
}

/// Similarity that the last of exactly two placing methods has over the first, request by request at the last load:
/// Figure 10's gain.
std::vector<Chart> gain_charts(const std::vector<const CellData*>& cells, const ExperimentData& data) {
  std::vector<Chart> charts;
  for (const std::string& workload : data.workloads()) {
    std::vector<const CellData*> placing;
    for (const CellData* cell : cells) {
      if (cell->row.cell.workload == workload && cell->values->contains(metrics::kMemoryHits.name))
        placing.push_back(cell);
    }
    if (placing.size() != 2 || points_of(*placing[0]).empty() || points_of(*placing[1]).empty()) continue;
    const std::string point = points_of(*placing[1]).back();
    const std::vector<float> less = series_of(*placing[0], metrics::kAnswerSimilarity.name, point);
    const std::vector<float> more = series_of(*placing[1], metrics::kAnswerSimilarity.name, point);
    const std::vector<float> at = series_of(*placing[1], metrics::kAnsweredMs.name, point);
    Timed gains;
    for (size_t r = 0; r < std::min({less.size(), more.size(), at.size()}); ++r) {
      if (std::isfinite(at[r])) gains.emplace_back(at[r] / 1e3, more[r] - less[r]);
    }
    std::ranges::stable_sort(gains, {}, &Timed::value_type::first);
    LineSeries line{.label = fmt::format("{} over {}", placing[1]->row.cell.method, placing[0]->row.cell.method),
                    .points = running_mean(gains, kWindow),
                    .emulated = is_emulated(*placing[1], metrics::kAnsweredMs.name)};
    if (line.points.size() < 2) continue;
    charts.push_back(line_chart(fmt::format("gain-{}", charts.size() + 1), fmt::format("Gain over time, {}", workload),
                                {.title = "seconds of the run", .marks = profilings(placing, workload)},
                                {.title = fmt::format("similarity gained, mean of {} requests", kWindow)}, {line}));
    charts.back().caption = "Measured, of the same request under both. Rules: a context was profiled anew.";
  }
  return charts;
}

/// Contexts by the form and tier in which they lie in the end: Figure 11.
std::vector<Chart> placement_charts(const std::vector<const CellData*>& cells) {
  std::vector<Chart> charts;
  for (const CellData* cell : cells) {
    const std::vector<std::string> points = points_of(*cell);
    std::map<std::pair<std::string, std::string>, double> counts;  // by form and tier
    for (const results::EventRow& row : cell->events) {
      if (row.sample_id != points.back() || row.event.event != metrics::kContextStored) continue;
      const json stored = json::parse(row.event.data_json, nullptr, /*allow_exceptions=*/false);
      if (stored.is_object()) ++counts[{stored.value("form", ""), stored.value("tier", "")}];
    }
    std::vector<BarValue> bars;
    for (const auto& [place, count] : counts)
      bars.push_back({.category = place.first, .part = place.second, .value = count});
    if (bars.size() < 2) continue;
    charts.push_back(bar_chart(
        fmt::format("placement-{}", charts.size() + 1),
        fmt::format("Where contexts lie and in which form: {}, {}", cell->row.cell.method, cell->row.cell.workload),
        {.title = "contexts", .zero = true, .whole = true}, bars, BarLayout::stacked));
    charts.back().caption = "As the run at the highest load ended.";
  }
  return charts;
}

}  // namespace

std::optional<Section> contexts_section(const ExperimentData& data) {
  Table table{
      .id = "contexts",
      .title = "Stored contexts",
      .caption =
          "Requests ask about contexts whose caches lie in memory, on disk or in remote storage. Similarity is of "
          "answers to those of full KV. Time to first token is measured: queueing, loading, restoring and reading "
          "the question, while other contexts move or are compressed. Below the optimum: seconds of utility a use, "
          "of the placement before the first request.",
      .columns = {{.title = "Method", .numeric = false},
                  {.title = "Workload", .numeric = false},
                  {.title = "Load", .numeric = false}}};
  const std::vector<MetricColumn> columns = columns_of(data);
  const std::vector<MetricLook> looks = add_metric_columns(data, columns, table);
  std::vector<const CellData*> cells;
  bool stored = false;
  for (const CellData& cell : data.cells) {
    if (cell.row.cell.kind != results::CellKind::serving || !cell.counts() ||
        !cell.values->contains(metrics::kServedScore.name))
      continue;
    stored = stored || cell.values->contains(metrics::kMemoryHits.name);
    cells.push_back(&cell);
  }
  if (!stored) return std::nullopt;
  for (const CellData* cell : cells) {
    for (const std::string& point : points_of(*cell)) table.rows.push_back(row_of(data, *cell, point, columns, looks));
  }
  Section section{.id = "contexts", .title = "Stored contexts", .tables = {std::move(table)}};
  add_quality_target(cells, section);
  add_trade_offs(cells, data, section);
  if (auto lengths = context_length_table(cells)) section.tables.push_back(std::move(*lengths));
  for (auto& more : {over_time_charts(cells, data, metrics::kAnswerSimilarity, "Answers", "similarity to full KV's"),
                     over_time_charts(cells, data, metrics::kTimeToFirstTokenMs, "First token", "ms to first token"),
                     over_time_charts(cells, data, metrics::kEndToEndMs, "End to end", "ms from arrival to last token"),
                     gain_charts(cells, data), placement_charts(cells)})
    section.charts.insert(section.charts.end(), more.begin(), more.end());
  return section;
}

}  // namespace kvarena::reports
