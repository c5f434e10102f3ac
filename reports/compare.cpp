#include "reports/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/core/error.h"
#include "reports/verdict.h"

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
    const auto one = noise_floor(data->of_model(record.model), record.workload, metric);
    if (one && (!floor || one->value > floor->value)) floor = one;
  }
  return floor;
}

/// A cell that both runs have, and its test.
struct Compared {
  const CellData* before = nullptr;
  const CellData* after = nullptr;
  std::string metric;
  metrics::PairedDifference test;
};

void check_cards(const CellData& before, const CellData& after) {
  if (before.row.cell.protocol_sha256 == after.row.cell.protocol_sha256) return;
  fail({.place = fmt::format("{}, {}", after.row.cell.method, after.row.cell.workload),
        .found = fmt::format("different protocol cards in the two databases ({})", card_differences(before, after)),
        .expected = "runs that may be compared",
        .action = "--allow-unlike-cards compares them all the same"});
}

std::vector<Compared> common_cells(const ExperimentData& before, const ExperimentData& after, bool allow_unlike_cards) {
  std::vector<Compared> list;
  for (const CellData& cell : after.cells) {
    const results::CellRecord& record = cell.row.cell;
    if (record.kind != results::CellKind::quality || !cell.counts()) continue;
    const CellData* old = same_place(before, record);
    if (old == nullptr || !old->counts()) continue;
    if (!allow_unlike_cards) check_cards(*old, cell);
    const std::string metric = primary_metric(after, record.workload);
    if (const auto test = pair_cells(cell, *old, metric)) {
      list.push_back({.before = old, .after = &cell, .metric = metric, .test = *test});
    }
  }
  return list;
}

void count(Comparison& result, const Difference& difference, double margin) {
  switch (difference.verdict) {
    case Verdict::better: ++result.better; break;
    case Verdict::worse:
      ++result.worse;
      if (std::abs(difference.value) > margin) ++result.regressions;
      break;
    case Verdict::within_noise: ++result.within_noise; break;
    case Verdict::differs: ++result.differs; break;
  }
}

TableRow row_of(const Compared& compared, const MetricLook& look, const Difference& difference) {
  const results::CellRecord& record = compared.after->row.cell;
  TableCell then = number_cell(look.scale * compared.test.baseline_mean);
  TableCell now = number_cell(look.scale * compared.test.method_mean);
  now.difference = difference;
  now.detail = fmt::format("{} samples, p = {:.3g}", compared.test.samples, compared.test.p_value);
  then.format = now.format = look.format;
  return {.cells = {text_cell(record.method), text_cell(record.workload),
                    text_cell(compared.metric + (look.unit.empty() ? "" : ", " + look.unit)), std::move(then),
                    std::move(now), text_cell(verdict_name(difference.verdict))}};
}

}  // namespace

Comparison compare(const ExperimentData& before, const ExperimentData& after, double margin, bool allow_unlike_cards) {
  Comparison result;
  Table table{.id = "comparison",
              .title = "After against before",
              .caption = "Means over the samples that both runs have; the difference is paired sample by sample.",
              .columns = {{.title = "Method", .numeric = false},
                          {.title = "Workload", .numeric = false},
                          {.title = "Metric", .numeric = false},
                          {.title = "Before"},
                          {.title = "After"},
                          {.title = "Verdict", .numeric = false}}};
  for (const Compared& compared : common_cells(before, after, allow_unlike_cards)) {
    const MetricLook look = look_of(after, compared.metric);
    // Each cell is judged by itself: a program that guards against regressions must not miss one in a large table.
    const Difference difference =
        verdict_of(compared.test, compared.test.p_value,
                   larger_floor(before, after, compared.after->row.cell, compared.metric), look);
    count(result, difference, margin);
    table.rows.push_back(row_of(compared, look, difference));
  }
  if (table.rows.empty()) {
    fail({.place = "compare",
          .found = "no method and workload that both databases have",
          .expected = "two runs of one config, or of configs that share labels"});
  }
  std::string summary = fmt::format("{} better, {} worse, {} within noise; {} worse by more than {} points.",
                                    result.better, result.worse, result.within_noise, result.regressions, margin);
  if (result.differs > 0) {
    summary += fmt::format(" {} differ in a metric of which the database does not say what is better.", result.differs);
  }
  result.document = {.title = fmt::format("{} against {}", after.experiment.experiment, before.experiment.experiment),
                     .introduction = {std::move(summary)},
                     .sections = {{.id = "comparison", .title = "Verdicts", .tables = {std::move(table)}}}};
  return result;
}

}  // namespace kvarena::reports
