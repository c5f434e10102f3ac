#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/core/error.h"
#include "reports/sections.h"
#include "reports/verdict.h"

namespace kvarena::reports {
namespace {

/// A method and a workload, tested against the baseline.
struct Comparison {
  std::optional<metrics::PairedDifference> test;
  double p_value = 1;   // adjusted for all comparisons of the table
  std::string refusal;  // why there is none
};

using Comparisons = std::map<const CellData*, Comparison>;

/// Tests every cell of kind quality against the baseline's; Holm's correction is over all of them.
Comparisons compare_all(const ExperimentData& data, bool unlike_prompts) {
  Comparisons all;
  std::vector<double> p_values;
  std::vector<Comparison*> tested;
  for (const CellData& cell : data.cells) {
    if (cell.row.cell.kind != results::CellKind::quality || cell.row.cell.baseline || !cell.counts()) continue;
    const std::string& workload = cell.row.cell.workload;
    const CellData* baseline = data.find(data.baseline(), workload, results::CellKind::quality);
    if (baseline == nullptr || !baseline->counts()) continue;
    Comparison& comparison = all[&cell];
    try {
      comparison.test = pair_cells(cell, *baseline, primary_metric(data, workload));
    } catch (const UserError& error) {
      if (!unlike_prompts) throw;
      comparison.refusal = error.what();
    }
    if (!comparison.test) continue;
    p_values.push_back(comparison.test->p_value);
    tested.push_back(&comparison);
  }
  const std::vector<double> adjusted = metrics::holm(p_values);
  for (size_t i = 0; i < tested.size(); ++i) tested[i]->p_value = adjusted[i];
  return all;
}

/// Mean and interval of a metric, or what the cell says instead.
TableCell score_cell(const CellData* cell, const std::string& metric, const MetricLook& look) {
  if (auto state = state_cell(cell)) return *state;
  const std::vector<double> values = finite(cell->numbers(metric));
  if (values.empty()) return {};
  const metrics::MeanEstimate estimate = metrics::bootstrap_mean(values, resampling_for(values.size()));
  TableCell number = number_cell(look.scale * estimate.mean);
  if (values.size() > 1) number.interval = {look.scale * estimate.interval.low, look.scale * estimate.interval.high};
  number.format = look.format;
  number.detail = fmt::format("{} samples", estimate.samples);
  mark_origin(number, cell->values.at(metric));
  return number;
}

TableCell quality_cell(const ExperimentData& data, const std::string& method, const std::string& workload,
                       const Comparisons& comparisons) {
  const CellData* cell = data.find(method, workload, results::CellKind::quality);
  const std::string metric = primary_metric(data, workload);
  const MetricLook look = look_of(data, metric);
  TableCell number = score_cell(cell, metric, look);
  const auto found = comparisons.find(cell);
  if (!number.has_value() || found == comparisons.end()) return number;
  const Comparison& comparison = found->second;
  if (!comparison.refusal.empty()) {
    TableCell refused = not_comparable_cell(number.value, comparison.refusal);
    refused.format = number.format;
    return refused;
  }
  if (comparison.test) {
    number.difference = verdict_of(*comparison.test, comparison.p_value, noise_floor(data, workload, metric), look);
    number.detail += fmt::format(", p = {:.3g} (Holm)", comparison.p_value);
  }
  return number;
}

/// The mean over workloads says something only where all are of one unit and direction.
bool have_one_look(const ExperimentData& data) {
  std::optional<MetricLook> first;
  for (const std::string& workload : data.workloads()) {
    MetricLook look = look_of(data, primary_metric(data, workload));
    look.title.clear();
    if (!first) first = look;
    if (!(look == *first)) return false;
  }
  return first.has_value();
}

TableCell mean_cell(const std::vector<TableCell>& cells, NumberFormat format) {
  double total = 0;
  for (size_t at = 1; at < cells.size(); ++at) {
    if (cells[at].kind != CellKind::number) return {};
    total += cells[at].value;
  }
  TableCell mean = number_cell(total / static_cast<double>(cells.size() - 1));
  mean.format = format;
  return mean;
}

/// "qa_f1, %"
std::string metric_and_unit(const std::string& metric, const MetricLook& look) {
  return look.unit.empty() || look.unit == metric ? metric : metric + ", " + look.unit;
}

std::vector<Column> quality_columns(const ExperimentData& data, bool with_mean) {
  std::vector<Column> columns = {{.title = "Method", .numeric = false}};
  MetricLook look;
  for (const std::string& workload : data.workloads()) {
    const std::string metric = primary_metric(data, workload);
    look = look_of(data, metric);
    columns.push_back(
        {.title = workload, .unit = metric_and_unit(metric, look), .better = look.better, .format = look.format});
  }
  if (with_mean) columns.push_back({.title = "Mean", .unit = look.unit, .better = look.better, .format = look.format});
  return columns;
}

/// The baseline's second run; nothing when there was none.
std::optional<TableRow> noise_floor_row(const ExperimentData& data, Table& table, bool with_mean) {
  TableRow row{.cells = {text_cell(data.baseline() + ", again")}, .role = RowRole::noise_floor};
  bool any = false;
  for (const std::string& workload : data.workloads()) {
    const CellData* second = data.find(data.baseline(), workload, results::CellKind::noise_floor);
    const std::string metric = primary_metric(data, workload);
    const MetricLook look = look_of(data, metric);
    TableCell cell = second == nullptr ? TableCell{} : score_cell(second, metric, look);
    const CellData* first = data.find(data.baseline(), workload, results::CellKind::quality);
    if (cell.has_value() && first != nullptr && first->counts()) {
      any = true;
      if (const auto test = pair_cells(*second, *first, metric)) {
        cell.difference = verdict_of(*test, test->p_value, noise_floor(data, workload, metric), look);
      }
      if (second->row.done_samples < first->row.done_samples) {
        const std::string few =
            fmt::format("The second run is on the first {} of {} samples, and so is its difference.",
                        second->row.done_samples, first->row.done_samples);
        cell.notes.push_back(footnote(table, few));
      }
    }
    if (second != nullptr && !row.badge) {
      row.badge = Badge{.label = second->row.cell.protocol_sha256.substr(0, 7), .details = second->card};
    }
    row.cells.push_back(std::move(cell));
  }
  if (with_mean) row.cells.emplace_back();
  if (!any) return std::nullopt;
  return row;
}

/// Power of the comparison by workload: the noise floor that a difference must exceed, and the smallest true difference
/// that so many samples mostly find.
Table sensitivity_table(const ExperimentData& data, const Comparisons& comparisons) {
  Table table{.id = "sensitivity",
              .title = "What these samples can show",
              .caption =
                  "Noise floor: mean over samples of the absolute difference between two runs of the baseline. "
                  "Detectable: the true mean difference that a paired test of so many samples finds in 80 of 100 "
                  "experiments at the 5% level, from the median spread of the methods' differences.",
              .columns = {{.title = "Workload", .numeric = false},
                          {.title = "Metric", .numeric = false},
                          {.title = "Samples", .format = {.style = NumberStyle::fixed, .digits = 0}},
                          {.title = "Noise floor"},
                          {.title = "Detectable difference"}}};
  for (const std::string& workload : data.workloads()) {
    const std::string metric = primary_metric(data, workload);
    const MetricLook look = look_of(data, metric);
    std::vector<double> spreads;
    int64_t samples = 0;
    for (const auto& [cell, comparison] : comparisons) {
      if (cell->row.cell.workload != workload || !comparison.test) continue;
      samples = std::max(samples, comparison.test->samples);
      if (comparison.test->standard_deviation > 0) spreads.push_back(comparison.test->standard_deviation);
    }
    if (samples == 0) continue;
    TableRow row{.cells = {text_cell(workload),
                           text_cell(metric_and_unit(metric, look)),
                           number_cell(static_cast<double>(samples)),
                           {},
                           {}}};
    if (const auto floor = noise_floor(data, workload, metric)) {
      row.cells[3] = number_cell(look.scale * floor->value);
      row.cells[3].detail = fmt::format("{} samples run twice", floor->samples);
    }
    if (!spreads.empty()) {
      row.cells[4] =
          number_cell(look.scale * metrics::minimum_detectable_difference(metrics::percentile(spreads, 50), samples));
    }
    row.cells[3].format = row.cells[4].format = look.format;
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

Section quality_section(const ExperimentData& data, bool unlike_prompts) {
  const Comparisons comparisons = compare_all(data, unlike_prompts);
  const bool with_mean = have_one_look(data);
  Table table{.id = "quality",
              .title = "Quality",
              .caption =
                  "Mean score with its 95% bootstrap interval; below it the paired difference to full KV on the same "
                  "samples: ▲ better, ▼ worse, ≈ within noise. A difference counts when its interval leaves zero, its "
                  "permutation test stays below 5% after Holm's correction over this table, and it exceeds what a "
                  "second run of full KV differs by.",
              .columns = quality_columns(data, with_mean)};
  for (const std::string& method : data.methods()) {
    TableRow row{.cells = {text_cell(method)},
                 .role = method == data.baseline() ? RowRole::baseline : RowRole::ordinary};
    for (const std::string& workload : data.workloads()) {
      row.cells.push_back(quality_cell(data, method, workload, comparisons));
      const CellData* cell = data.find(method, workload, results::CellKind::quality);
      if (cell != nullptr && !row.badge) {
        row.badge = Badge{.label = cell->row.cell.protocol_sha256.substr(0, 7), .details = cell->card};
      }
    }
    if (with_mean) row.cells.push_back(mean_cell(row.cells, table.columns.back().format));
    table.rows.push_back(std::move(row));
    if (method != data.baseline()) continue;
    if (auto floor = noise_floor_row(data, table, with_mean)) table.rows.push_back(std::move(*floor));
  }
  mark_best(table);
  Section section{.id = "quality", .title = "Quality by workload", .tables = {std::move(table)}};
  Table sensitivity = sensitivity_table(data, comparisons);
  if (!sensitivity.rows.empty()) section.tables.push_back(std::move(sensitivity));
  return section;
}

}  // namespace kvarena::reports
