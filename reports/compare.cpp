#include "reports/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/core/error.h"
#include "reports/change.h"
#include "reports/sections.h"

namespace kvarena::reports {
namespace {

/// The cell with the same labels, or null.
const CellData* same_place(const ExperimentData& data, const results::CellRecord& record) {
  const auto it = std::ranges::find_if(data.cells, [&](const CellData& cell) {
    const results::CellRecord& other = cell.row.cell;
    return other.model == record.model && other.workload == record.workload && other.method == record.method &&
           other.kind == record.kind;
  });
  return it == data.cells.end() ? nullptr : &*it;
}

/// The larger of the two runs' noise floors.
std::optional<NoiseFloor> larger_floor(const ExperimentData& before, const ExperimentData& after,
                                       const results::CellRecord& record, const std::string& metric) {
  std::optional<NoiseFloor> floor;
  for (const ExperimentData* data : {&before, &after}) {
    const auto one = noise_floor(*data, record.workload, metric, record.model);
    if (one && (!floor || one->value > floor->value)) floor = one;
  }
  return floor;
}

/// A cell that both runs have.
struct Compared {
  const CellData* before = nullptr;
  const CellData* after = nullptr;
  std::string metric;
  std::optional<Change> change;  // nothing where the cell failed, or its method acts no more
};

void check_alike(const CellData& before, const CellData& after) {
  const std::string place = fmt::format("{}, {}", after.row.cell.method, after.row.cell.workload);
  if (const std::string settings = settings_differences(before, after); !settings.empty()) {
    fail({.place = place,
          .found = fmt::format("settings that differ under one label (before / after: {})", settings),
          .expected = "equal settings, so that what changed is the program",
          .action = "give one of them a label of its own, as --set does, or compare all the same with "
                    "--allow-unlike-cards"});
  }
  if (before.row.cell.protocol_sha256 == after.row.cell.protocol_sha256) return;
  const std::string differences = card_differences(before, after);
  if (differences.empty()) return;
  fail({.place = place,
        .found = fmt::format("different protocol cards in the two databases ({})", differences),
        .expected = "runs that may be compared",
        .action = "--allow-unlike-cards compares them all the same"});
}

std::vector<Compared> common_cells(const ExperimentData& before, const ExperimentData& after,
                                   const CompareOptions& options) {
  std::vector<Compared> list;
  for (const CellData& cell : after.cells) {
    const results::CellRecord& record = cell.row.cell;
    const bool failed = cell.row.state == results::CellState::failed || cell.row.state == results::CellState::inactive;
    if (record.kind != results::CellKind::quality || !(cell.counts() || failed)) continue;
    const CellData* old = same_place(before, record);
    if (old == nullptr || !old->counts()) continue;
    if (!options.allow_unlike) check_alike(*old, cell);
    Compared compared{.before = old, .after = &cell, .metric = primary_metric(after, record.workload), .change = {}};
    if (!failed) {
      compared.change =
          change_between(*old, cell, compared.metric, larger_floor(before, after, record, compared.metric),
                         look_of(after, compared.metric), options.margin);
    }
    if (failed || compared.change) list.push_back(std::move(compared));
  }
  return list;
}

/// Names the methods that have scores on a workload in `data` and no cell there in `other`.
std::string methods_only_in(const ExperimentData& data, const ExperimentData& other) {
  std::vector<std::string> methods;
  for (const CellData& cell : data.cells) {
    const results::CellRecord& record = cell.row.cell;
    if (record.kind != results::CellKind::quality || !cell.counts() || same_place(other, record) != nullptr) continue;
    const std::string name = fmt::format("“{}”", record.method);
    if (std::ranges::find(methods, name) == methods.end()) methods.push_back(name);
  }
  return fmt::format("{}", fmt::join(methods, ", "));
}

/// Says which rows there is nothing to compare with.
std::string unpaired(const ExperimentData& before, const ExperimentData& after) {
  std::string text;
  for (const auto& [run, methods] :
       {std::pair{"before", methods_only_in(before, after)}, std::pair{"after", methods_only_in(after, before)}}) {
    if (!methods.empty())
      text += fmt::format("{}Not compared, for they have scores {} alone: {}.", text.empty() ? "" : " ", run, methods);
  }
  return text;
}

/// Counts the change and returns its name in the table.
std::string count(Comparison& result, const Compared& compared, const MetricLook& look, double fail_on_drop) {
  if (!compared.change) {
    ++result.failed;
    ++result.regressions;
    return std::string(results::name(compared.after->row.state));
  }
  const std::optional<Difference>& difference = compared.change->difference;
  if (!difference) {
    ++result.same;
    return "same";
  }
  const double drop = look.better == Better::lower ? difference->value : -difference->value;
  const bool directed = look.better != Better::neither && difference->verdict != Verdict::no_difference;
  if (directed && exceeds(drop, fail_on_drop)) ++result.regressions;
  switch (difference->verdict) {
    case Verdict::better: ++result.better; return "better";
    case Verdict::worse: ++result.worse; return "worse";
    case Verdict::no_difference:
    case Verdict::too_few:
    case Verdict::differs: break;
  }
  ++result.changed;
  return "changed";
}

TableRow row_of(const Compared& compared, const MetricLook& look, std::string verdict, Table& table) {
  const results::CellRecord& record = compared.after->row.cell;
  TableRow row{.cells = {text_cell(record.method), text_cell(record.workload),
                         text_cell(compared.metric + (look.unit.empty() ? "" : ", " + look.unit))}};
  if (!compared.change) {
    const std::vector<double> then = finite(compared.before->numbers(compared.metric));
    row.cells.push_back(then.empty() ? TableCell{} : number_cell(look.scale * metrics::mean_of(then)));
    row.cells.back().format = look.format;
    if (!then.empty()) mark_origin(row.cells.back(), compared.before->values->at(compared.metric));
    row.cells.push_back(state_cell(compared.after).value_or(TableCell{}));
    row.cells.resize(table.columns.size() - 1);
    row.cells.push_back(text_cell(std::move(verdict)));
    return row;
  }
  const metrics::PairedDifference& test = compared.change->test;
  TableCell then = number_cell(look.scale * test.baseline_mean), now = number_cell(look.scale * test.method_mean);
  then.format = now.format = look.format;
  mark_origin(then, compared.before->values->at(compared.metric));
  mark_origin(now, compared.after->values->at(compared.metric));
  now.difference = compared.change->difference;
  now.detail = fmt::format("{} samples, p = {:.3g}", test.samples, test.p_value);
  const int64_t most = std::max(compared.before->row.done_samples, compared.after->row.done_samples);
  if (test.samples < most)
    now.notes.push_back(footnote(table, fmt::format("{} of {} samples are in both runs.", test.samples, most)));
  row.cells.insert(row.cells.end(), {std::move(then), std::move(now)});
  const bool lower = look.better == Better::lower;
  for (const int64_t samples : {lower ? test.losses : test.wins, lower ? test.wins : test.losses,
                                test.samples - test.wins - test.losses, compared.change->answers})
    row.cells.push_back(number_cell(static_cast<double>(samples)));
  row.cells.push_back(text_cell(std::move(verdict)));
  return row;
}

Table empty_table(double margin) {
  const NumberFormat count{.style = NumberStyle::fixed, .digits = 0};
  return {
      .id = "comparison",
      .title = "Changed cells",
      .caption = fmt::format(
          "Means over the samples that both runs have, and the samples that became better, worse, or stayed equal in "
          "score. Equal settings give equal results, so every change is one of the program: better or worse when the "
          "mean moved by more than {:.4g}, changed when scores or answers did alone.",
          margin),
      .columns = {{.title = "Method", .numeric = false},
                  {.title = "Workload", .numeric = false},
                  {.title = "Metric", .numeric = false},
                  {.title = "Before"},
                  {.title = "After"},
                  {.title = "Better", .group = "Samples", .format = count},
                  {.title = "Worse", .group = "Samples", .format = count},
                  {.title = "Equal", .group = "Samples", .format = count},
                  {.title = "Answers changed", .group = "Samples", .format = count},
                  {.title = "Verdict", .numeric = false}}};
}

/// When an experiment was last run, and by which program.
std::string run_words(const ExperimentData& data) {
  if (data.runs.empty()) return "no run";
  return fmt::format("{}, revision {}", data.runs.back().started_at, data.runs.back().git_revision);
}

}  // namespace

Comparison compare(const ExperimentData& before, const ExperimentData& after, const CompareOptions& options) {
  Comparison result;
  const double fail_on_drop = options.fail_on_drop.value_or(options.margin);
  Table table = empty_table(options.margin);
  for (const Compared& compared : common_cells(before, after, options)) {
    const MetricLook look = look_of(after, compared.metric);
    std::string verdict = count(result, compared, look, fail_on_drop);
    const bool same = compared.change && !compared.change->difference;
    if (!same) table.rows.push_back(row_of(compared, look, std::move(verdict), table));
  }
  if (table.rows.empty() && result.same == 0) {
    fail({.place = "compare",
          .found = "no method and workload that both databases have",
          .expected = "two runs of one config, or of configs that share labels"});
  }
  std::string summary = fmt::format("{} better, {} worse, {} changed, {} the same", result.better, result.worse,
                                    result.changed, result.same);
  if (result.failed > 0) summary += fmt::format(", {} failed", result.failed);
  summary += fmt::format("; {} regressions (a drop of more than {:.4g} points, or a failure).", result.regressions,
                         fail_on_drop);
  const std::string &name = after.experiment.experiment, &old_name = before.experiment.experiment;
  result.document = {
      .title = name == old_name ? name + ", before and after" : fmt::format("{} against {}", name, old_name),
      .introduction = {std::move(summary)},
      .provenance = {{"before", run_words(before)}, {"after", run_words(after)}}};
  if (std::string text = unpaired(before, after); !text.empty())
    result.document.introduction.push_back(std::move(text));
  if (!table.rows.empty())
    result.document.sections = {{.id = "comparison", .title = "Changes", .tables = {std::move(table)}}};
  return result;
}

}  // namespace kvarena::reports
