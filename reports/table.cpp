#include "reports/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/core/error.h"
#include "reports/emulated.h"

namespace kvarena::reports {
namespace {

bool competes(const TableRow& row, const TableCell& cell) {
  return row.role == RowRole::ordinary && cell.kind == CellKind::number && !cell.emulated && !cell.modelled &&
         std::isfinite(cell.value);
}

bool has_emulated(const Table& table) {
  return std::ranges::any_of(table.rows,
                             [](const TableRow& row) { return std::ranges::any_of(row.cells, &TableCell::emulated); });
}

/// Whether the best value cannot be told from the cell's: equal in print, or inside its interval.
bool reaches(const TableCell& cell, double best, NumberFormat format) {
  if (format_number(cell.value, format) == format_number(best, format)) return true;
  return cell.interval && cell.interval->low <= best && best <= cell.interval->high;
}

void mark_best_of(std::vector<TableCell*>& cells, const Column& column) {
  if (cells.size() < 2) return;
  const auto by_value = [](const TableCell* a, const TableCell* b) { return a->value < b->value; };
  const auto [least, most] = std::minmax_element(cells.begin(), cells.end(), by_value);
  const double best = column.better == Better::higher ? (*most)->value : (*least)->value;
  const auto reached = [&](const TableCell* cell) { return reaches(*cell, best, format_of(*cell, column)); };
  if (std::ranges::all_of(cells, reached)) return;
  for (TableCell* cell : cells) cell->best = reached(cell);
}

void mark_best_of_column(Table& table, size_t at) {
  if (table.columns[at].better == Better::neither) return;
  std::map<int, std::vector<TableCell*>> cells;  // by peers
  for (TableRow& row : table.rows) {
    if (row.peers >= 0 && competes(row, row.cells[at])) cells[row.peers].push_back(&row.cells[at]);
  }
  for (auto& [peers, group] : cells) mark_best_of(group, table.columns[at]);
}

}  // namespace

std::string caption_of(const Table& table) { return marked_caption(table.caption, has_emulated(table)); }

NumberFormat format_of(const TableCell& cell, const Column& column) { return cell.format.value_or(column.format); }

TableCell text_cell(std::string text) {
  TableCell cell;
  cell.kind = CellKind::text;
  cell.text = std::move(text);
  return cell;
}

TableCell number_cell(double value, std::optional<metrics::Interval> interval) {
  TableCell cell;
  cell.kind = CellKind::number;
  cell.value = value;
  cell.interval = interval;
  return cell;
}

TableCell failed_cell(std::string reason) {
  TableCell cell;
  cell.kind = CellKind::failed;
  cell.reason = std::move(reason);
  return cell;
}

TableCell inactive_cell(std::string reason) {
  TableCell cell;
  cell.kind = CellKind::inactive;
  cell.reason = std::move(reason);
  return cell;
}

TableCell missing_cell(std::string reason) {
  TableCell cell;
  cell.kind = CellKind::missing;
  cell.reason = std::move(reason);
  return cell;
}

TableCell not_comparable_cell(double value, std::string reason) {
  TableCell cell;
  cell.kind = CellKind::not_comparable;
  cell.value = value;
  cell.reason = std::move(reason);
  return cell;
}

bool Table::has_badges() const {
  return std::any_of(rows.begin(), rows.end(), [](const TableRow& row) { return row.badge.has_value(); });
}

size_t footnote(Table& table, std::string text) {
  const auto found = std::find(table.footnotes.begin(), table.footnotes.end(), text);
  if (found != table.footnotes.end()) return static_cast<size_t>(found - table.footnotes.begin());
  table.footnotes.push_back(std::move(text));
  return table.footnotes.size() - 1;
}

void mark_best(Table& table) {
  for (size_t at = 0; at < table.columns.size(); ++at) mark_best_of_column(table, at);
}

void check_table(const Table& table) {
  for (const TableRow& row : table.rows) {
    KVARENA_ASSERT(row.cells.size() == table.columns.size(),
                   fmt::format("table {}: a row has {} cells, the table {} columns", table.id, row.cells.size(),
                               table.columns.size()));
    for (const TableCell& cell : row.cells) {
      for (const size_t note : cell.notes) {
        KVARENA_ASSERT(note < table.footnotes.size(), fmt::format("table {}: note {} does not exist", table.id, note));
      }
    }
  }
}

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::better: return "better";
    case Verdict::worse: return "worse";
    case Verdict::no_difference: return "no difference shown";
    case Verdict::too_few: return "too few samples to tell";
    case Verdict::differs: return "differs";
  }
  return "";
}

std::string difference_text(const Difference& difference, NumberFormat format) {
  constexpr const char* kSign[] = {"▲", "▼", "≈", "?", "≠"};
  std::string text =
      fmt::format("{} {}", kSign[static_cast<size_t>(difference.verdict)], format_signed(difference.value, format));
  if (difference.detectable) text += fmt::format(", could show {}", format_number(*difference.detectable, format));
  return text;
}

std::string cell_remark(const TableCell& cell) {
  std::vector<std::string> remarks;
  switch (cell.kind) {
    case CellKind::failed: remarks.push_back("failed: " + cell.reason); break;
    case CellKind::inactive: remarks.push_back("inactive: " + cell.reason); break;
    case CellKind::missing: remarks.push_back("missing: " + cell.reason); break;
    case CellKind::not_comparable: remarks.push_back("not comparable: " + cell.reason); break;
    case CellKind::empty:
    case CellKind::text:
    case CellKind::number: break;
  }
  if (cell.best) remarks.emplace_back("best");
  if (cell.simulated) remarks.emplace_back("simulated");
  if (cell.emulated) remarks.emplace_back(kEmulatedMark);
  if (cell.modelled) remarks.emplace_back("modelled");
  return fmt::format("{}", fmt::join(remarks, "; "));
}

}  // namespace kvarena::reports
