// Policies that place stored contexts: a row a method and point.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "reports/chart_specs.h"
#include "reports/metric_look.h"
#include "reports/sections.h"
#include "reports/serving_points.h"

namespace kvarena::reports {
namespace {

constexpr NumberFormat kFixed1{.style = NumberStyle::fixed, .digits = 1};

constexpr MetricColumn kColumns[] = {
    {metrics::kServedScore, {}, "Similarity"},
    {metrics::kTimeToFirstTokenSpread.mean, kFixed1, "mean", "Time to first token"},
    {metrics::kTimeToFirstTokenSpread.p99, kFixed1, "p99", "Time to first token"},
    {metrics::kMemoryHits, {}, "in memory", "Found"},
    {metrics::kDiskHits, {}, "on disk", "Found"},
    {metrics::kRemoteHits, {}, "remote", "Found"},
    {metrics::kRecomputedContexts, {}, "computed anew", "Found"},
    {metrics::kCacheLoadMs, kFixed1, "loaded", "Cache"},
    {metrics::kCacheRestoreMs, kFixed1, "restored", "Cache"},
    {metrics::kKeepInMemory, {}, "in memory", "Kept"},
    {metrics::kKeepOnDisk, {}, "on disk", "Kept"},
    {metrics::kReprofiledContexts, kFixed1, "Profiled anew"},
};

TableRow row_of(const ExperimentData& data, const CellData& cell, const std::string& point,
                const std::vector<MetricLook>& looks) {
  TableRow row{.cells = {text_cell(cell.row.cell.method), text_cell(cell.row.cell.workload), text_cell(point)},
               .role = cell.row.cell.method == data.baseline() ? RowRole::baseline : RowRole::ordinary};
  for (size_t i = 0; i < std::size(kColumns); ++i) {
    const double value = value_of(cell, kColumns[i].metric.name, point);
    TableCell& number = row.cells.emplace_back();
    if (std::isfinite(value)) number = number_cell(looks[i].scale * value);
  }
  return row;
}

/// Similarity over time to first token of every point, a chart a workload: the paper's Figure 7.
std::vector<Chart> trade_off_charts(const std::vector<const CellData*>& cells, const ExperimentData& data) {
  std::vector<Chart> charts;
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
                          .baseline = cell->row.cell.method == data.baseline()});
      }
    }
    if (points.size() < 2) continue;
    mark_pareto_front(points);
    charts.push_back(scatter_chart(
        fmt::format("contexts-{}", charts.size() + 1), fmt::format("Answers against time to first token, {}", workload),
        {.title = "mean time to first token, ms"}, {.title = "similarity to full KV's answers"}, points));
  }
  return charts;
}

/// The mean over the newest `window` values, at each from the window's end on.
std::vector<LinePoint> running_mean(const std::vector<float>& values, size_t window) {
  std::vector<LinePoint> points;
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += values[i];
    if (i >= window) sum -= values[i - window];
    if (i + 1 >= window) points.push_back({.x = static_cast<double>(i + 1), .y = sum / static_cast<double>(window)});
  }
  return points;
}

/// Similarity of answers as requests came, a line a method at the last load: the paper's Figure 10. Methods whose every
/// answer is full KV's are left out.
std::vector<Chart> over_time_charts(const std::vector<const CellData*>& cells, const ExperimentData& data) {
  static constexpr size_t kWindow = 10;  // requests
  const auto line = [](const CellData& cell) {
    LineSeries answers{.label = cell.row.cell.method};
    const std::vector<std::string> points = points_of(cell);
    if (points.empty()) return answers;
    const std::vector<float> similarity = series_of(cell, metrics::kAnswerSimilarity.name, points.back());
    const bool full = std::ranges::all_of(similarity, [](float value) { return value >= 1; });
    if (!full) answers.points = running_mean(similarity, kWindow);
    return answers;
  };
  return charts_by_workload(
      data, cells, line, [](size_t number, const std::string& workload, const std::vector<LineSeries>& lines) {
        Chart chart =
            line_chart(fmt::format("answers-{}", number), fmt::format("Answers over time, {}", workload),
                       {.title = "requests so far"},
                       {.title = fmt::format("similarity to full KV's, mean of {} requests", kWindow)}, lines);
        chart.caption = "A policy that profiles anew recovers what its first profile did not know.";
        return chart;
      });
}

}  // namespace

std::optional<Section> contexts_section(const ExperimentData& data) {
  Table table{
      .id = "contexts",
      .title = "Stored contexts",
      .caption =
          "Requests ask about contexts whose caches lie in memory, on disk or in remote storage. Similarity is of "
          "answers to those of full KV. Time to first token is measured: queueing, loading, restoring and reading "
          "the question; a context is moved or compressed outside of it.",
      .columns = {{.title = "Method", .numeric = false},
                  {.title = "Workload", .numeric = false},
                  {.title = "Load", .numeric = false}}};
  const std::vector<MetricLook> looks = add_metric_columns(data, kColumns, table);
  std::vector<const CellData*> cells;
  bool stored = false;
  for (const CellData& cell : data.cells) {
    if (cell.row.cell.kind != results::CellKind::serving || !cell.counts() ||
        !cell.values.contains(metrics::kServedScore.name))
      continue;
    stored = stored || cell.values.contains(metrics::kMemoryHits.name);
    cells.push_back(&cell);
  }
  if (!stored) return std::nullopt;
  for (const CellData* cell : cells) {
    for (const std::string& point : points_of(*cell)) table.rows.push_back(row_of(data, *cell, point, looks));
  }
  std::vector<Chart> charts = trade_off_charts(cells, data);
  std::ranges::move(over_time_charts(cells, data), std::back_inserter(charts));
  return Section{
      .id = "contexts", .title = "Stored contexts", .tables = {std::move(table)}, .charts = std::move(charts)};
}

}  // namespace kvarena::reports
