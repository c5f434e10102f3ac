#include <fmt/format.h>

#include <cmath>

#include "reports/sections.h"
#include "reports/verdict.h"

namespace kvarena::reports {
namespace {

enum Place : size_t { method, workload, metric, unit, published, reproduced, difference, finding, source };

/// The values that a printed one speaks of: of quality cells, then timed, then modelled.
struct Ours {
  const CellData* cell = nullptr;
  const results::ValueColumn* values = nullptr;
};

Ours values_for(const ExperimentData& data, const results::PublishedValue& printed) {
  Ours ours;
  for (const results::CellKind kind : {results::CellKind::quality, results::CellKind::timing}) {
    const CellData* cell = data.find(printed.method, printed.workload, kind);
    if (cell == nullptr) continue;
    if (ours.cell == nullptr) ours.cell = cell;
    for (const std::string& name : {printed.metric, modelled(printed.metric)}) {
      const auto found = cell->values.find(name);
      if (cell->counts() && found != cell->values.end()) return {.cell = cell, .values = &found->second};
    }
  }
  return ours;
}

/// As papers print the metric, unless the value says its unit.
std::optional<double> factor_for(const results::PublishedValue& printed, const results::ValueColumn& values,
                                 const MetricLook& look) {
  if (printed.unit.empty()) return look.scale;
  return unit_factor(values.unit, printed.unit);
}

/// Fills what is ours in a row: reproduced, difference, finding.
void reproduce(const ExperimentData& data, const results::PublishedValue& printed, std::vector<TableCell>& cells) {
  const Ours ours = values_for(data, printed);
  std::vector<double> values;
  if (ours.values != nullptr) {
    for (const results::ValueRow& row : ours.values->rows) values.push_back(row.value);
  }
  values = finite(std::move(values));
  if (values.empty()) {
    cells[reproduced] = state_cell(ours.cell).value_or(TableCell{});
    cells[finding] = text_cell("not comparable: no value here");
    return;
  }
  const std::optional<double> factor = factor_for(printed, *ours.values, look_of(data, printed.metric));
  if (!factor) {
    cells[finding] = text_cell(fmt::format("not comparable: printed in {}, stored in {}", printed.unit,
                                           ours.values->unit.empty() ? "plain numbers" : ours.values->unit));
    return;
  }
  const metrics::MeanEstimate mean = metrics::bootstrap_mean(values, resampling_for(values.size()));
  const metrics::Interval interval{*factor * mean.interval.low, *factor * mean.interval.high};
  const double value = *factor * mean.mean;
  const NumberFormat format = cells[published].format.value_or(NumberFormat{});
  if (printed.workload.ends_with(kInventedLabel)) {
    const std::string mark = results::invented_mark(data.invented);
    cells[reproduced] = not_comparable_cell(value, mark);
    cells[reproduced].format = format;
    cells[finding] = text_cell("not comparable: " + mark);
    return;
  }
  cells[reproduced] = number_cell(value, values.size() > 1 ? std::optional(interval) : std::nullopt);
  cells[reproduced].detail = fmt::format("{} samples", mean.samples);
  mark_origin(cells[reproduced], *ours.values);
  cells[difference] = number_cell(value - printed.value);
  cells[difference].is_signed = true;
  for (const Place at : {reproduced, difference}) cells[at].format = format;
  const bool match = format_number(value, format) == format_number(printed.value, format);
  const bool inside = values.size() > 1 && interval.low <= printed.value && printed.value <= interval.high;
  cells[finding] = text_cell(match ? "match" : inside ? "within interval" : "differs");
}

/// Scores as papers print them, other quantities with the digits that matter.
NumberFormat format_for(const std::string& unit) {
  const bool share = unit == "%" || unit == "percent";
  return share ? NumberFormat{.style = NumberStyle::fixed, .digits = 1}
               : NumberFormat{.style = NumberStyle::significant, .digits = 4};
}

}  // namespace

std::optional<Section> published_section(const ExperimentData& data) {
  Table table{.id = "published",
              .title = "Published and reproduced",
              .caption =
                  "Difference is reproduced minus published, in the unit that was printed. A published value "
                  "inside the 95% interval of ours is marked so; what has no number here says why.",
              .columns = {{.title = "Method", .numeric = false},
                          {.title = "Workload", .numeric = false},
                          {.title = "Metric", .numeric = false},
                          {.title = "Unit", .numeric = false},
                          {.title = "Published"},
                          {.title = "Reproduced"},
                          {.title = "Difference"},
                          {.title = "Finding", .numeric = false},
                          {.title = "Source", .numeric = false}}};
  for (const results::PublishedValue& value : data.experiment.published) {
    if (data.cells.empty() || value.model != data.cells.front().row.cell.model) continue;
    const std::string shown = value.unit.empty() ? look_of(data, value.metric).unit : value.unit;
    std::vector<TableCell> cells(table.columns.size());
    cells[method] = text_cell(value.method);
    cells[workload] = text_cell(value.workload);
    cells[metric] = text_cell(value.metric);
    cells[unit] = text_cell(shown);
    cells[published] = number_cell(value.value);
    cells[published].format = format_for(shown);
    cells[source] = text_cell(value.source);
    if (!value.note.empty()) cells[source].notes.push_back(footnote(table, value.note));
    reproduce(data, value, cells);
    table.rows.push_back({.cells = std::move(cells)});
  }
  if (table.rows.empty()) return std::nullopt;
  return Section{.id = "published", .title = "Published and reproduced", .tables = {std::move(table)}};
}

}  // namespace kvarena::reports
