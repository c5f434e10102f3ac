#pragma once
// A table as data, between the results and the writers: what a cell says and how sure it is, not how it looks.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "metrics/statistics.h"
#include "reports/number.h"

namespace kvarena::reports {

enum class Better { higher, lower, neither };

/// Outcome of a comparison with the baseline, as verdict_of() (verdict.h) defines it. `differs`: a difference shown in
/// a metric that is good in neither direction, or a change of no size.
enum class Verdict { better, worse, no_difference, too_few, differs };

// Intervals (kvarena::Interval) are 95% confidence intervals in the unit of the value they belong to.

/// Against the baseline, paired; positive means the value is larger.
struct Difference {
  double value = 0;
  metrics::Interval interval;
  Verdict verdict = Verdict::too_few;
  std::optional<double> detectable;  // beside no_difference: the difference that so many samples could have shown
};

enum class CellKind {
  empty,           // nothing was asked for here
  text,            // `text`
  number,          // `value`
  failed,          // ran and ended with `reason`
  inactive,        // the method never acted, for `reason`
  missing,         // not evaluated: the method lacks the weights that `reason` names
  not_comparable,  // a number exists but may not stand beside the others, for `reason`
};

struct TableCell {
  CellKind kind = CellKind::empty;
  std::string text;  // of CellKind::text
  double value = 0;  // of CellKind::number and not_comparable
  std::optional<metrics::Interval> interval;
  std::optional<Difference> difference;
  std::optional<int64_t> samples;      // that the value is a mean of
  std::optional<double> published;     // printed in a paper for the same cell, in the value's unit
  std::optional<NumberFormat> format;  // instead of the column's
  bool best = false;                   // best of its column among rows that are compared
  bool simulated = false;              // a codec without a packed form
  bool emulated = false;               // storage or link that was not there
  bool modelled = false;               // virtual clock
  bool is_signed = false;              // printed with its sign: a difference standing in a column of its own
  std::string reason;                  // of failed, inactive, missing, not_comparable
  std::string detail;                  // more about the cell: "200 samples"; a tooltip in HTML
  std::vector<size_t> notes;           // indices into Table::footnotes

  [[nodiscard]] bool has_value() const { return kind == CellKind::number || kind == CellKind::not_comparable; }
};

[[nodiscard]] TableCell text_cell(std::string text);
[[nodiscard]] TableCell number_cell(double value, std::optional<metrics::Interval> interval = std::nullopt);
[[nodiscard]] TableCell failed_cell(std::string reason);
[[nodiscard]] TableCell inactive_cell(std::string reason);
[[nodiscard]] TableCell missing_cell(std::string reason);
[[nodiscard]] TableCell not_comparable_cell(double value, std::string reason);

struct Column {
  std::string title;
  std::string unit;        // "ms", printed in the head; empty for none
  std::string group = {};  // neighbours with the same non-empty group stand under one spanning head
  Better better = Better::neither;
  NumberFormat format = {};
  bool numeric = true;  // false: text, left-aligned
};

/// How a cell's number is printed.
[[nodiscard]] NumberFormat format_of(const TableCell& cell, const Column& column);

/// A label with details behind it; in reports, the protocol card of a row.
struct Badge {
  std::string label;
  std::vector<std::pair<std::string, std::string>> details;
};

enum class RowRole { ordinary, baseline, noise_floor };

struct TableRow {
  std::vector<TableCell> cells;  // one a column
  RowRole role = RowRole::ordinary;
  std::optional<Badge> badge;
  int peers = 0;  // rows of one number compete for the best of a column; of a negative one, none does
};

/// The mean, its interval in a second line and its difference to the baseline in a third.
inline constexpr const char* kUsualCell = "{mean}\n({low} – {high})\n{difference}";

struct Table {
  std::string id;  // names the table in links and in CSV; lower-case with hyphens
  std::string title;
  std::string caption;                   // a sentence or two: what is shown, how to read it
  std::string badge_title = "protocol";  // head of the badge column
  std::vector<Column> columns;
  std::vector<TableRow> rows;
  std::vector<std::string> footnotes;
  bool sortable = true;
  std::string cell = kUsualCell;  // what a number's cell shows, as cell_lines() (cell_text.h) reads it

  [[nodiscard]] bool has_badges() const;
};

/// The caption of a table, with what the mark of emulated numbers means where anything in it has that.
[[nodiscard]] std::string caption_of(const Table& table);

/// Index of the footnote with this text, added when it is new.
size_t footnote(Table& table, std::string text);

/// Sets `best` on the best number of every column that has a better direction, among rows that are peers. Baselines,
/// noise floors, emulated, modelled and incomparable cells do not compete. All whose printed digits or whose interval
/// hold the best value share it; where all do, or there are fewer than two competitors, nobody is best.
void mark_best(Table& table);

/// Every row has one cell a column, every note exists. Throws InternalError otherwise; writers call it.
void check_table(const Table& table);

// Writers. None of them trusts a single character of the texts in the table.

/// A <table> element with caption, footnotes and sort keys; classes are defined by page/page.css.
[[nodiscard]] std::string table_html(const Table& table);

/// A pipe table with title, caption and footnotes.
[[nodiscard]] std::string table_markdown(const Table& table);

/// Table environments with booktabs rules, as wide as a column where that is enough and as a page elsewhere; a table
/// that is wider than a page is divided by its columns. Needs booktabs and graphicx, no hash, no sign that pdflatex
/// lacks.
[[nodiscard]] std::string table_latex(const Table& table);

/// RFC 4180 with one head line. A column whose cells carry intervals, differences or remarks is followed by columns
/// "<title> low", "<title> high", "<title> difference", "... difference low", "... difference high", "... verdict",
/// "<title> samples", "<title> published", "<title> remark". Numbers have full precision.
[[nodiscard]] std::string table_csv(const Table& table);

/// One RFC 4180 record a cell, for files that hold several tables; columns as in kTidyCsvHead.
[[nodiscard]] std::string table_tidy_csv(const Table& table);
inline constexpr const char* kTidyCsvHead =
    "table,row,role,protocol,column,unit,value,low,high,difference,difference_low,difference_high,verdict,"
    "samples,published,text,remark\r\n";

/// "better", "worse", "no difference shown", "too few samples to tell", "differs".
[[nodiscard]] const char* verdict_name(Verdict verdict);

/// "▼ −20.0", "≈ −1.0, could show 9.8": a difference as pages print it.
[[nodiscard]] std::string difference_text(const Difference& difference, NumberFormat format);

/// The unpunctuated words behind a cell: "simulated", "emu", "modelled", "failed: out of memory".
[[nodiscard]] std::string cell_remark(const TableCell& cell);

}  // namespace kvarena::reports
