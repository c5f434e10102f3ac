#pragma once
// Inside the reports folder: what a cell with a number says, in the words that a table's cell format names.

#include <string>
#include <vector>

#include "reports/table.h"

namespace kvarena::reports {

enum class CellWord { mean, interval, low, high, n, difference, published };

struct CellPart {
  CellWord word = CellWord::mean;
  std::string before;  // text of the format in front of it
  std::string text;    // the number, as printed
  std::string after;   // text of the format behind the line's last word
};

/// The lines of a cell by a format such as "{mean} ± {interval}\n{difference}": `interval` is half the width of the
/// 95% interval between `low` and `high`, `difference` is the one to the baseline with its sign of a verdict, `n` the
/// number of samples, `published` the value that a paper prints. A word that the cell has no number for is left out
/// with the text in front of it, and a line without words altogether.
[[nodiscard]] std::vector<std::vector<CellPart>> cell_lines(const TableCell& cell, const Column& column,
                                                            const std::string& format);

/// "Score (%) ↑": title, unit and direction of a column.
[[nodiscard]] std::string column_head(const Column& column);

/// "simulated, emu" and the like, for formats without tooltips; empty for a number that stands for itself.
[[nodiscard]] std::string origin_words(const TableCell& cell);

/// Removes from a cell what a format does not name, so that no writer shows it; the value stays.
void keep_named(TableCell& cell, const std::string& format);

}  // namespace kvarena::reports
