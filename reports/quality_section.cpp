#include <fmt/format.h>

#include "reports/comparisons.h"
#include "reports/sections.h"

namespace kvarena::reports {
namespace {

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

/// Puts a verdict and what it rests on behind a number.
void judge_cell(TableCell& number, const Evidence& evidence, const MetricLook& look, Table& table) {
  number.difference = verdict_of(evidence, look);
  number.detail = evidence_text(evidence, look);
  if (const std::string why = explanation(evidence, look); !why.empty()) number.notes.push_back(footnote(table, why));
}

/// Marks a number of other samples than the baseline's.
void mark_samples(TableCell& number, const CellData& cell, const CellData* baseline, Table& table) {
  if (baseline == nullptr || !baseline->counts() || cell.row.done_samples == baseline->row.done_samples) return;
  number.notes.push_back(
      footnote(table, fmt::format("On {} samples where {} has {}; the difference is over those of both.",
                                  cell.row.done_samples, baseline->row.cell.method, baseline->row.done_samples)));
}

TableCell quality_cell(const ExperimentData& data, const std::string& method, const std::string& workload,
                       const Comparisons& comparisons, Table& table) {
  const CellData* cell = data.find(method, workload, results::CellKind::quality);
  const std::string metric = primary_metric(data, workload);
  const MetricLook look = look_of(data, metric);
  TableCell number = score_cell(cell, metric, look);
  if (!number.has_value()) return number;
  mark_samples(number, *cell, data.find(data.baseline(), workload, results::CellKind::quality), table);
  const CellComparison* comparison = comparisons.of(cell);
  if (comparison == nullptr) return number;
  if (!comparison->refusal.empty()) {
    TableCell refused = not_comparable_cell(number.value, comparison->refusal);
    refused.format = number.format;
    return refused;
  }
  if (!comparison->evidence) return number;
  judge_cell(number, *comparison->evidence, look, table);
  const Evidence* pooled = comparisons.pooled(method, workload);
  const Verdict verdict = number.difference->verdict;
  if (pooled != nullptr && (verdict == Verdict::too_few || verdict == Verdict::no_difference)) {
    number.detail += fmt::format("; over all workloads of this unit: {}, {}",
                                 verdict_name(verdict_of(*pooled, look).verdict), evidence_text(*pooled, look));
  }
  return number;
}

TableCell mean_cell(const std::vector<TableCell>& cells, const Evidence* pooled, const Column& column, Table& table,
                    const MetricLook& look) {
  double total = 0;
  for (size_t at = 1; at < cells.size(); ++at) {
    if (cells[at].kind != CellKind::number) return {};
    total += cells[at].value;
  }
  TableCell mean = number_cell(total / static_cast<double>(cells.size() - 1));
  mean.format = column.format;
  if (pooled != nullptr) judge_cell(mean, *pooled, look, table);
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
        judge_cell(cell,
                   {.test = *test,
                    .p_value = test->p_value,
                    .floor = noise_floor(data, workload, metric),
                    .tokens = cell_tokens(data, *second)},
                   look, table);
      }
      mark_samples(cell, *second, first, table);
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
                  "experiments at the 5% level, from the median spread of the methods' differences; none where "
                  "samples are too few for any difference.",
              .columns = {{.title = "Workload", .numeric = false},
                          {.title = "Metric", .numeric = false},
                          {.title = "Samples", .format = {.style = NumberStyle::fixed, .digits = 0}},
                          {.title = "Noise floor"},
                          {.title = "Detectable difference"}}};
  for (const std::string& workload : data.workloads()) {
    const std::string metric = primary_metric(data, workload);
    const MetricLook look = look_of(data, metric);
    const int64_t samples = comparisons.samples(workload);
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
    if (const double detectable = comparisons.detectable(workload); detectable > 0)
      row.cells[4] = number_cell(look.scale * detectable);
    row.cells[3].format = row.cells[4].format = look.format;
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string quality_caption(const ExperimentData& data, bool with_mean) {
  std::string text = fmt::format(
      "Mean score with its 95% bootstrap interval; below it the paired difference to {0} on the same samples: "
      "▲ better, ▼ worse, ≈ no difference shown (and the difference that so many samples could show), ? too few "
      "samples "
      "to tell. "
      "A difference is shown when its interval leaves zero, its sign-flip test stays below 5%, and it exceeds what a "
      "second run of {0} differs by. A row asks one question, so its tests are corrected together (Hochberg), apart "
      "from other rows.",
      data.baseline());
  if (with_mean) text += " The mean's difference is a test of its own, over all pairs of all workloads.";
  return text;
}

}  // namespace

Section quality_section(const ExperimentData& data, bool unlike_prompts) {
  const Comparisons comparisons(data, unlike_prompts);
  const bool with_mean = have_one_look(data);
  Table table{.id = "quality",
              .title = "Quality",
              .caption = quality_caption(data, with_mean),
              .columns = quality_columns(data, with_mean)};
  for (const std::string& method : data.methods()) {
    TableRow row{.cells = {text_cell(method)},
                 .role = method == data.baseline() ? RowRole::baseline : RowRole::ordinary};
    for (const std::string& workload : data.workloads()) {
      row.cells.push_back(quality_cell(data, method, workload, comparisons, table));
      const CellData* cell = data.find(method, workload, results::CellKind::quality);
      if (cell != nullptr && !row.badge) {
        row.badge = Badge{.label = cell->row.cell.protocol_sha256.substr(0, 7), .details = cell->card};
      }
    }
    if (with_mean) {
      const std::string first = data.workloads().front();
      row.cells.push_back(mean_cell(row.cells, comparisons.pooled(method, first), table.columns.back(), table,
                                    look_of(data, primary_metric(data, first))));
    }
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
