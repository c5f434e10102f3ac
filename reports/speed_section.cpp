// Times of cells of kind timing.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "reports/latency_charts.h"
#include "reports/pooled.h"
#include "reports/sections.h"
#include "reports/timing.h"
#include "reports/verdict.h"

namespace kvarena::reports {
namespace {

constexpr NumberFormat kWhole{.style = NumberStyle::fixed, .digits = 0};
constexpr NumberFormat kFixed1{.style = NumberStyle::fixed, .digits = 1};
constexpr NumberFormat kFixed2{.style = NumberStyle::fixed, .digits = 2};

/// Repeats of a time over all workloads and samples; for values of a virtual clock, which do not vary, the values.
std::vector<double> repeats(const ExperimentData& data, const std::string& method, const std::string& name) {
  std::vector<double> all;
  for (const std::string& workload : data.workloads()) {
    const CellData* cell = data.find(method, workload, results::CellKind::timing);
    if (cell == nullptr || !cell->counts()) continue;
    const auto series = cell->series->find(name);
    if (series == cell->series->end()) {
      const std::vector<double> values = finite(cell->numbers(name));
      all.insert(all.end(), values.begin(), values.end());
      continue;
    }
    for (const results::SeriesRow& one : series->second) {
      all.insert(all.end(), one.series.values.begin(), one.series.values.end());
    }
  }
  return finite(std::move(all));
}

TableCell spread_cell(const std::vector<double>& values, const MetricLook& look) {
  if (values.empty()) return {};
  TableCell cell = number_cell(look.scale * metrics::percentile(values, 50));
  if (values.size() > 1) {
    cell.interval =
        metrics::Interval{look.scale * metrics::percentile(values, 10), look.scale * metrics::percentile(values, 90)};
  }
  cell.detail = fmt::format("{} timed runs", values.size());
  return cell;
}

/// Puts a verdict behind a time.
void judge(const ExperimentData& data, const std::string& method, const std::string& metric, const MetricLook& look,
           TableCell& cell) {
  const auto test = time_test(data, method, metric);
  if (!test || !cell.has_value()) return;
  cell.difference = Difference{.value = look.scale * test->difference,
                               .interval = {look.scale * test->interval.low, look.scale * test->interval.high},
                               .verdict = test->verdict,
                               .detectable = {}};
}

/// Whether more than one request was timed together.
bool batched(const ExperimentData& data) {
  return std::ranges::any_of(data.cells, [](const CellData& cell) {
    const std::vector<double> requests = cell.numbers(metrics::kBatchRequests.name);
    return std::ranges::any_of(requests, [](double value) { return value > 1; });
  });
}

/// Times of the methods over all workloads of the data.
Table speed_table(const ExperimentData& data, bool shared) {
  std::vector<MetricColumn> columns = {
      {metrics::kTimeToFirstTokenMs, kFixed1},
      {metrics::kCompressMs, kFixed1, "of it compressing"},
      {metrics::kCompressionOverhead, kFixed1, "Observing and compressing, of the prefill"},
      {metrics::kInterTokenLatencyMs, kFixed2},
      {metrics::kEndToEndMs, kFixed1},
      {metrics::kThroughputTokensPerS, kFixed1}};
  if (batched(data)) columns.push_back({metrics::kBatchRequests, kWhole, "Batch"});
  Table table{
      .id = "speed",
      .title = "Latency and throughput",
      .caption = fmt::format(
          "Median over all timed repeats with their 10th to 90th percentile. Difference: to {}, the median over timed "
          "samples; ▲ better, ▼ worse: in every sample all repeats lie beyond all of the other's; ≈ they do not, ? too "
          "few repeats to tell. Measured: wall clock of one request, or of a batch of equal ones, with its own "
          "prefill, after warm-up. Modelled: a virtual clock on a hardware profile.",
          data.baseline()),
      .columns = {{.title = "Method", .numeric = false}, {.title = "Clock", .numeric = false}}};
  if (shared) {
    table.caption +=
        " All methods run one and the same prefill, so times to the first token are not compared: what a method adds "
        "to it is its compressing.";
  }
  const std::vector<MetricLook> looks = add_metric_columns(data, columns, table);
  for (const std::string& method : data.methods()) {
    for (const bool virtual_clock : {false, true}) {
      TableRow row{.cells = {text_cell(method), text_cell(virtual_clock ? "modelled" : "measured")},
                   .role = method == data.baseline() ? RowRole::baseline : RowRole::ordinary};
      bool any = false;
      for (size_t at = 0; at < columns.size(); ++at) {
        const std::string name = virtual_clock ? modelled(columns[at].metric.name) : columns[at].metric.name;
        TableCell cell = spread_cell(repeats(data, method, name), looks[at]);
        const TableCell marks = pool_of(data, method, results::CellKind::timing, name).marks;
        const bool one_prefill = shared && columns[at].metric.name == metrics::kTimeToFirstTokenMs.name;
        if (!virtual_clock && method != data.baseline() && !one_prefill) judge(data, method, name, looks[at], cell);
        cell.simulated = marks.simulated;
        cell.emulated = marks.emulated;
        cell.modelled = virtual_clock && cell.has_value();
        any = any || cell.has_value();
        row.cells.push_back(std::move(cell));
      }
      if (any) table.rows.push_back(std::move(row));
    }
  }
  return table;
}

}  // namespace

std::optional<Section> speed_section(const ExperimentData& data) {
  const bool shared = share_prefill(data);
  std::vector<Table> tables;
  data.for_request_lengths([&](const std::string& length, const ExperimentData& part) {
    Table table = speed_table(part, shared);
    if (table.rows.empty()) return;
    name_after_length(table, length);
    tables.push_back(std::move(table));
  });
  if (tables.empty()) return std::nullopt;
  Section section{.id = "speed", .title = "Speed", .tables = std::move(tables)};
  if (!shared) section.charts = first_token_charts(data);
  add_quality_speed(data, !shared, section);
  return section;
}

}  // namespace kvarena::reports
