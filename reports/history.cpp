#include "reports/history.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"
#include "reports/change.h"
#include "reports/chart_specs.h"
#include "reports/escape.h"
#include "reports/sections.h"

namespace kvarena::reports {
namespace {

struct Row {
  std::string model, workload, method;
  auto operator<=>(const Row&) const = default;
};

const CellData* cell_of(const ExperimentData& data, const Row& row) {
  const auto found = std::ranges::find_if(data.cells, [&](const CellData& cell) {
    const results::CellRecord& record = cell.row.cell;
    return record.kind == results::CellKind::quality && record.model == row.model && record.workload == row.workload &&
           record.method == row.method && cell.counts();
  });
  return found == data.cells.end() ? nullptr : &*found;
}

/// Every row of any run, once, in the order of the latest plan that has it.
std::vector<Row> all_rows(const std::vector<NamedRun>& runs) {
  std::vector<Row> rows;
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    for (const CellData& cell : run->data.cells) {
      const results::CellRecord& record = cell.row.cell;
      if (record.kind != results::CellKind::quality || !cell.counts()) continue;
      Row row{.model = record.model, .workload = record.workload, .method = record.method};
      if (std::ranges::find(rows, row) == rows.end()) rows.push_back(std::move(row));
    }
  }
  return rows;
}

/// The mean of a run, and what changed since the last run before it that has the row.
TableCell number_of(const std::vector<NamedRun>& runs, size_t at, const Row& row, const std::string& metric,
                    Table& table) {
  const CellData* cell = cell_of(runs[at].data, row);
  if (cell == nullptr) return {};
  const std::vector<double> values = finite(cell->numbers(metric));
  if (values.empty()) return {};
  const MetricLook look = look_of(runs[at].data, metric);
  TableCell number = number_cell(look.scale * metrics::mean_of(values));
  number.format = look.format;
  number.detail = fmt::format("{} samples", values.size());
  mark_origin(number, cell->values->at(metric));
  for (size_t before = at; before-- > 0;) {
    const CellData* old = cell_of(runs[before].data, row);
    if (old == nullptr) continue;
    if (const std::string settings = settings_differences(*old, *cell); !settings.empty()) {
      number.notes.push_back(footnote(table, fmt::format("Other settings than in the run before: {}.", settings)));
      break;
    }
    if (old->question() != cell->question()) {
      number.notes.push_back(footnote(
          table, fmt::format("Question {}, {} in the run before: not compared.", cell->question(), old->question())));
      break;
    }
    const auto floor = noise_floor(runs[at].data, row.workload, metric, row.model);
    if (auto change = change_between(*old, *cell, metric, floor, look, 0)) {
      number.difference = std::move(change->difference);
      number.detail += fmt::format(", {} answers changed", change->answers);
    }
    break;
  }
  return number;
}

Section section_of(const std::vector<NamedRun>& runs, const std::vector<Row>& rows) {
  const ExperimentData& latest = runs.back().data;
  const std::string& model = rows.front().model;
  const std::string& workload = rows.front().workload;
  const std::string metric = primary_metric(latest, workload);
  const MetricLook look = look_of(latest, metric);
  const std::string id = slug(model + " " + workload);
  Table table{.id = "history-" + id,
              .title = fmt::format("{}, {}", workload, model),
              .caption =
                  "Means; where scores or answers changed, the difference to the run before that has the row, over the "
                  "samples of both: ▲ better, ▼ worse, ≠ changed with the mean where it was.",
              .columns = {{.title = "Method", .numeric = false}}};
  for (const NamedRun& run : runs) {
    table.columns.push_back(
        {.title = run.name, .unit = look.unit, .group = metric, .better = look.better, .format = look.format});
  }
  std::vector<LineSeries> lines;
  for (const Row& row : rows) {
    TableRow shown{.cells = {text_cell(row.method)}};
    LineSeries line{.label = row.method, .baseline = row.method == latest.baseline()};
    for (size_t at = 0; at < runs.size(); ++at) {
      shown.cells.push_back(number_of(runs, at, row, metric, table));
      line.emulated = line.emulated || shown.cells.back().emulated;
      if (shown.cells.back().has_value())
        line.points.push_back({.x = static_cast<double>(at) + 1, .y = shown.cells.back().value});
    }
    if (line.baseline) shown.role = RowRole::baseline;
    table.rows.push_back(std::move(shown));
    lines.push_back(std::move(line));
  }
  Chart chart = line_chart("history-chart-" + id, table.title, {.title = "run"},
                           {.title = look.unit.empty() ? metric : metric + ", " + look.unit}, lines);
  chart.caption = "Runs in the order of the table.";
  return {.id = "history-" + id, .title = table.title, .tables = {std::move(table)}, .charts = {std::move(chart)}};
}

}  // namespace

Document history(const std::vector<NamedRun>& runs) {
  if (runs.size() < 2)
    fail({.place = "history", .found = fmt::format("{} databases", runs.size()), .expected = "at least two"});
  std::vector<std::vector<Row>> by_workload;
  for (Row& row : all_rows(runs)) {
    const int64_t in =
        std::ranges::count_if(runs, [&](const NamedRun& run) { return cell_of(run.data, row) != nullptr; });
    if (in < 2) continue;
    const auto same = std::ranges::find_if(by_workload, [&](const std::vector<Row>& rows) {
      return rows.front().model == row.model && rows.front().workload == row.workload;
    });
    if (same == by_workload.end()) {
      by_workload.push_back({std::move(row)});
    } else {
      same->push_back(std::move(row));
    }
  }
  if (by_workload.empty()) {
    fail({.place = "history",
          .found = "no method and workload that two of the databases have",
          .expected = "runs of one config, or of configs that share labels"});
  }
  Document document{.title = fmt::format("{} over {} runs", runs.back().data.experiment.experiment, runs.size())};
  for (const std::vector<Row>& rows : by_workload) document.sections.push_back(section_of(runs, rows));
  for (const NamedRun& run : runs) {
    if (!run.data.runs.empty()) document.provenance.emplace_back(run.name, run.data.runs.back().git_revision);
  }
  return document;
}

}  // namespace kvarena::reports
