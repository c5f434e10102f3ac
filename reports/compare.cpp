#include "reports/compare.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"
#include "reports/experiment_report.h"

namespace kvarena::reports {
namespace {

constexpr double kPercent = 100;

void count(Comparison& result, const Difference& difference, double margin) {
  switch (difference.verdict) {
    case Verdict::better: ++result.better; break;
    case Verdict::worse:
      ++result.worse;
      if (-difference.value > margin) ++result.regressions;
      break;
    case Verdict::within_noise: ++result.within_noise; break;
  }
}

/// The cell with the same labels, or null.
const CellData* same_place(const ExperimentData& data, const store::CellRecord& record) {
  const auto it = std::ranges::find_if(data.cells, [&](const CellData& cell) {
    const store::CellRecord& other = cell.row.cell;
    return other.model == record.model && other.workload == record.workload && other.method == record.method &&
           other.kind == record.kind;
  });
  return it == data.cells.end() ? nullptr : &*it;
}

}  // namespace

Comparison compare(const ExperimentData& before, const ExperimentData& after, double margin, bool allow_unlike_cards) {
  Comparison result;
  Table table{.id = "comparison",
              .title = "After against before",
              .caption = "Mean score in percent; the difference is paired on the samples that both runs have.",
              .columns = {{.title = "Method", .numeric = false},
                          {.title = "Workload", .numeric = false},
                          {.title = "Before", .unit = "%"},
                          {.title = "After", .unit = "%"},
                          {.title = "Verdict", .numeric = false}}};
  for (const CellData& cell : after.cells) {
    const store::CellRecord& record = cell.row.cell;
    if (record.kind != store::CellKind::quality || !cell.counts()) continue;
    const CellData* old = same_place(before, record);
    if (old == nullptr || !old->counts()) continue;
    if (old->row.cell.protocol_sha256 != record.protocol_sha256 && !allow_unlike_cards) {
      fail({.place = fmt::format("{}, {}", record.method, record.workload),
            .found = "different protocol cards in the two databases",
            .expected = "runs that may be compared",
            .action = "--allow-unlike-cards compares them all the same"});
    }
    const std::string metric = primary_metric(after, record.workload);
    const auto difference = paired_verdict(cell, *old, metric, Better::higher, kPercent);
    if (!difference) continue;
    count(result, *difference, margin);
    TableCell now = number_cell(kPercent * mean_of(cell.numbers(metric)));
    now.difference = difference;
    table.rows.push_back({.cells = {text_cell(record.method), text_cell(record.workload),
                                    number_cell(kPercent * mean_of(old->numbers(metric))), std::move(now),
                                    text_cell(verdict_name(difference->verdict))}});
  }
  if (table.rows.empty()) {
    fail({.place = "compare",
          .found = "no method and workload that both databases have",
          .expected = "two runs of one config, or of configs that share labels"});
  }
  result.document = {
      .title = fmt::format("{} against {}", after.experiment.experiment, before.experiment.experiment),
      .introduction = {fmt::format("{} better, {} worse, {} within noise; {} worse by more than {} points.",
                                   result.better, result.worse, result.within_noise, result.regressions, margin)},
      .sections = {{.id = "comparison", .title = "Verdicts", .tables = {std::move(table)}}}};
  return result;
}

}  // namespace kvarena::reports
