// A sweep of load: a row a method, clock and point.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "reports/chart_specs.h"
#include "reports/emulated.h"
#include "reports/latency_charts.h"
#include "reports/metric_look.h"
#include "reports/sections.h"
#include "reports/serving_points.h"

namespace kvarena::reports {
namespace {

constexpr NumberFormat kFixed1{.style = NumberStyle::fixed, .digits = 1};
constexpr NumberFormat kFixed2{.style = NumberStyle::fixed, .digits = 2};

constexpr MetricColumn kColumns[] = {
    {metrics::kOfferedRequestsPerS, kFixed2, "offered", "Requests"},
    {metrics::kServedRequestsPerS, kFixed2, "served", "Requests"},
    {metrics::kTimeToFirstTokenSpread.mean, kFixed1, "mean", "Time to first token"},
    {metrics::kTimeToFirstTokenSpread.p50, kFixed1, "p50", "Time to first token"},
    {metrics::kTimeToFirstTokenSpread.p99, kFixed1, "p99", "Time to first token"},
    {metrics::kQueueingSpread.mean, kFixed1, "mean", "Queueing"},
    {metrics::kInterTokenLatencySpread.p50, kFixed2, "p50", "Inter-token latency"},
    {metrics::kInterTokenLatencySpread.p99, kFixed2, "p99", "Inter-token latency"},
    {metrics::kEndToEndSpread.mean, kFixed1, "mean", "Whole answer"},
    {metrics::kEndToEndSpread.p50, kFixed1, "p50", "Whole answer"},
    {metrics::kEndToEndSpread.p99, kFixed1, "p99", "Whole answer"},
    {metrics::kServedTokensPerS, kFixed1, "Throughput"},
    {metrics::kAttainment, {}, "within objectives", "Goodput"},
    {metrics::kGoodputLatencyPerS, kFixed2, "by latency", "Goodput"},
    {metrics::kGoodputScorePerS, kFixed2, "by score", "Goodput"},
    // Servers behind endpoints alone count what fails.
    {metrics::kFailedRequests, {}, "failed", "Without an answer"},
    {metrics::kRefusedRequests, {}, "refused", "Without an answer"},
};

/// Rows of one cell on one clock; none when it has no values there.
void add_rows(Table& table, const ExperimentData& data, const CellData& cell, bool virtual_clock,
              const std::vector<MetricLook>& looks) {
  for (const std::string& point : points_of(cell)) {
    TableRow row{.cells = {text_cell(cell.row.cell.method), text_cell(cell.row.cell.workload),
                           text_cell(virtual_clock ? "modelled" : "measured"), text_cell(point)},
                 .role = cell.row.cell.method == data.baseline() ? RowRole::baseline : RowRole::ordinary};
    bool any = false;
    for (size_t i = 0; i < looks.size(); ++i) {
      const std::string metric = virtual_clock ? modelled(kColumns[i].metric.name) : kColumns[i].metric.name;
      const double value = value_of(cell, metric, point);
      TableCell& number = row.cells.emplace_back();
      if (std::isnan(value)) continue;
      number = number_cell(looks[i].scale * value);
      mark_origin(number, cell.values->at(metric));
      any = true;
    }
    if (any) table.rows.push_back(std::move(row));
  }
}

constexpr size_t kOutcomes = 2;  // columns at the end

/// Whether servers behind endpoints were asked.
bool served_elsewhere(const ExperimentData& data) {
  return std::ranges::any_of(data.cells, [](const CellData& cell) {
    return cell.row.cell.kind == results::CellKind::serving && cell.values->contains(metrics::kFailedRequests.name);
  });
}

/// A time of requests whose mean is drawn over the load.
struct LoadTime {
  const char* metric;
  const char* id;
  const char* title;
};

constexpr LoadTime kLoadTimes[] = {
    {metrics::kTimeToFirstTokenSpread.mean.name, "load", "Time to first token"},
    {metrics::kEndToEndSpread.mean.name, "load-whole", "Whole answer"},
};

/// The mean of a time over what was offered, a line a method; measured.
std::vector<Chart> load_charts(const std::vector<const CellData*>& cells, const ExperimentData& data,
                               const LoadTime& time) {
  const auto line = [&](const CellData& cell) {
    LineSeries waits{.label = cell.row.cell.method,
                     .baseline = cell.row.cell.method == data.baseline(),
                     .emulated = is_emulated(cell, time.metric)};
    for (const std::string& point : points_of(cell)) {
      const double x = value_of(cell, metrics::kOfferedRequestsPerS.name, point);
      const double y = value_of(cell, time.metric, point);
      if (std::isfinite(x) && std::isfinite(y)) waits.points.push_back({.x = x, .y = y});
    }
    return waits;
  };
  return charts_by_workload(
      data, cells, line, [&](size_t number, const std::string& workload, const std::vector<LineSeries>& lines) {
        Chart chart = line_chart(
            fmt::format("{}-{}", time.id, number), fmt::format("{} under load, {}", time.title, workload),
            {.title = "requests offered a second"}, {.title = "mean ms, queueing included", .zero = true}, lines);
        chart.caption = "Measured. Each point serves samples of its own.";
        return chart;
      });
}

/// Time to first token of the baseline's requests as they came, a line a load: whether a queue grows; measured.
std::vector<Chart> arrival_charts(const std::vector<const CellData*>& cells, const ExperimentData& data) {
  std::vector<Chart> charts;
  for (const CellData* cell : cells) {
    if (cell->row.cell.method != data.baseline()) continue;
    std::vector<LineSeries> lines;
    for (const std::string& point : points_of(*cell)) {
      LineSeries line{.label = point, .emulated = is_emulated(*cell, metrics::kTimeToFirstTokenMs.name)};
      for (const float value : series_of(*cell, metrics::kTimeToFirstTokenMs.name, point)) {
        line.points.push_back({.x = static_cast<double>(line.points.size() + 1), .y = value});
      }
      if (line.points.size() > 1) lines.push_back(std::move(line));
    }
    if (lines.empty()) continue;
    Chart chart = line_chart(fmt::format("arrivals-{}", charts.size() + 1),
                             fmt::format("{}, request by request, {}", cell->row.cell.method, cell->row.cell.workload),
                             {.title = "request, in order of arrival"},
                             {.title = "ms to its first token, queueing included", .zero = true}, lines);
    chart.caption = "Measured. Below capacity the line stays where it is; above, it rises as long as requests come.";
    charts.push_back(std::move(chart));
  }
  return charts;
}

}  // namespace

std::optional<Section> serving_section(const ExperimentData& data) {
  Table table{
      .id = "serving",
      .title = "Requests that arrive over time",
      .caption =
          served_elsewhere(data)
              ? "Streams of a server, timed where their tokens arrive from when each request was due; a load of 1x is "
                "what the baseline serves when all requests wait. Requests without an answer meet no objective."
              : "Continuous batching under one budget of cache bytes; a load of 1x is what full KV serves when all "
                "requests wait. Every request prefills its own prompt, but where it begins with a stored context. "
                "Measured: passes of this machine, time without work skipped. Modelled: the same loop on a described "
                "machine. Time to first token includes queueing, and so does the whole answer, from arrival to its "
                "last token.",
      .columns = {{.title = "Method", .numeric = false},
                  {.title = "Workload", .numeric = false},
                  {.title = "Clock", .numeric = false},
                  {.title = "Load", .numeric = false}}};
  const std::span<const MetricColumn> columns(kColumns);
  const size_t shown = columns.size() - (served_elsewhere(data) ? 0 : kOutcomes);
  const std::vector<MetricLook> looks = add_metric_columns(data, columns.first(shown), table);
  std::vector<const CellData*> cells;
  for (const CellData& cell : data.cells) {
    if (cell.row.cell.kind != results::CellKind::serving || !cell.counts()) continue;
    cells.push_back(&cell);
    for (const bool virtual_clock : {false, true}) add_rows(table, data, cell, virtual_clock, looks);
  }
  if (table.rows.empty()) return std::nullopt;
  std::vector<Chart> charts;
  for (const LoadTime& time : kLoadTimes) std::ranges::move(load_charts(cells, data, time), std::back_inserter(charts));
  std::ranges::move(arrival_charts(cells, data), std::back_inserter(charts));
  std::ranges::move(latency_distribution_charts(data), std::back_inserter(charts));
  return Section{.id = "serving", .title = "Serving", .tables = {std::move(table)}, .charts = std::move(charts)};
}

}  // namespace kvarena::reports
