// A table model as LaTeX: no wider than a page, and as a column where it can be.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "reports/cell_text.h"
#include "reports/escape.h"
#include "reports/table.h"
#include "reports/text_width.h"

namespace kvarena::reports {
namespace {

// Widths in points at \footnotesize. Computer Modern is narrower than the font that text_width() knows.
constexpr double kFont = 8 * 0.87;
constexpr double kColumnGap = 8;      // twice \tabcolsep as set below
constexpr double kPrintColumn = 235;  // column of a page with two
constexpr double kPage = 440;         // shrunk by a fifth it fits the page of a plain article
constexpr double kWidestText = 130;   // longer texts wrap
constexpr double kWidestHead = 62;

double width_of(const std::string& text) { return text_width(text, kFont); }

/// Content of a cell, line by line, as LaTeX and as plain text to measure.
struct Line {
  std::string tex;
  std::string plain;
};

std::vector<Line> number_lines(const TableCell& cell, const Column& column, const std::string& format) {
  std::vector<Line> lines;
  for (const std::vector<CellPart>& parts : cell_lines(cell, column, format)) {
    Line line;
    for (const CellPart& part : parts) {
      const std::string number = escape_latex(part.text);
      const bool bold = cell.best && part.word == CellWord::mean;
      line.tex += escape_latex(part.before) + (bold ? "\\textbf{" + number + "}" : number) + escape_latex(part.after);
      line.plain += part.before + part.text + part.after;
    }
    lines.push_back(std::move(line));
  }
  if (const std::string words = origin_words(cell); !words.empty()) lines.push_back({"\\textit{" + words + "}", words});
  return lines;
}

std::vector<Line> lines_of(const TableCell& cell, const Column& column, const std::string& format) {
  switch (cell.kind) {
    case CellKind::empty: return {{"--", "--"}};
    case CellKind::text: return {{escape_latex(cell.text), cell.text}};
    case CellKind::failed: return {{"\\textit{failed}", "failed"}};
    case CellKind::inactive: return {{"\\textit{inactive}", "inactive"}};
    case CellKind::missing: return {{"\\textit{missing}", "missing"}};
    case CellKind::number:
    case CellKind::not_comparable: return number_lines(cell, column, format);
  }
  return {};
}

std::vector<std::string> head_lines(const Column& column) {
  const std::string head = column_head(column);
  if (!column.numeric || width_of(head) <= kWidestHead) return {head};
  if (column.unit.empty()) return wrap_text(head, kFont, kWidestHead);
  std::vector<std::string> lines = wrap_text(column.title, kFont, kWidestHead);
  std::ranges::move(wrap_text(head.substr(column.title.size() + 1), kFont, kWidestHead), std::back_inserter(lines));
  return lines;
}

double column_width(const Table& table, size_t at) {
  double width = 0;
  for (const std::string& line : head_lines(table.columns[at])) width = std::max(width, width_of(line));
  for (const TableRow& row : table.rows) {
    for (const Line& line : lines_of(row.cells[at], table.columns[at], table.cell))
      width = std::max(width, width_of(line.plain));
  }
  return table.columns[at].numeric ? width : std::min(width, kWidestText);
}

bool wraps(const Table& table, size_t at) {
  if (table.columns[at].numeric) return false;
  return std::ranges::any_of(table.rows,
                             [&](const TableRow& row) { return width_of(row.cells[at].text) > kWidestText; });
}

/// Columns of each part of a table, no wider than `widest` where columns allow; its leading text columns are in every
/// part.
std::vector<std::vector<size_t>> parts_within(const Table& table, double widest) {
  std::vector<size_t> leading;
  double fixed = 0;
  for (size_t at = 0; at < table.columns.size() && !table.columns[at].numeric; ++at) {
    leading.push_back(at);
    fixed += column_width(table, at) + kColumnGap;
  }
  std::vector<std::vector<size_t>> parts = {leading};
  double width = fixed;
  for (size_t at = leading.size(); at < table.columns.size(); ++at) {
    const double more = column_width(table, at) + kColumnGap;
    if (width + more > widest && parts.back().size() > leading.size()) {
      parts.push_back(leading);
      width = fixed;
    }
    parts.back().push_back(at);
    width += more;
  }
  return parts;
}

/// As few parts as fit a page, of about the same width.
std::vector<std::vector<size_t>> parts_of(const Table& table) {
  std::vector<std::vector<size_t>> parts = parts_within(table, kPage);
  constexpr double kStep = 10;
  for (double widest = kPage - kStep; parts.size() > 1 && widest > 0; widest -= kStep) {
    std::vector<std::vector<size_t>> narrower = parts_within(table, widest);
    if (narrower.size() > parts.size()) break;
    parts = std::move(narrower);
  }
  return parts;
}

std::string head_cell(const Column& column) {
  std::vector<std::string> lines;
  for (const std::string& line : head_lines(column)) lines.push_back(escape_latex(line));
  if (lines.size() == 1) return lines.front();
  return fmt::format("\\begin{{tabular}}[b]{{@{{}}r@{{}}}}{}\\end{{tabular}}", fmt::join(lines, "\\\\"));
}

/// A spanning head over neighbours of one group, with its rule; empty when no column has a group.
std::string group_heads(const Table& table, const std::vector<size_t>& columns) {
  std::string heads, rules;
  for (size_t at = 0; at < columns.size();) {
    const std::string& group = table.columns[columns[at]].group;
    size_t end = at + 1;
    while (!group.empty() && end < columns.size() && table.columns[columns[end]].group == group) ++end;
    if (at > 0) heads += " & ";
    if (!group.empty()) {
      heads += fmt::format("\\multicolumn{{{}}}{{c}}{{{}}}", end - at, escape_latex(group));
      rules += fmt::format("\\cmidrule(lr){{{}-{}}}", at + 1, end);
    }
    at = end;
  }
  return rules.empty() ? rules : heads + " \\tabularnewline\n" + rules + "\n";
}

std::string note_marks(const TableCell& cell) {
  if (cell.notes.empty()) return {};
  std::vector<size_t> marks;
  for (const size_t note : cell.notes) marks.push_back(note + 1);
  return fmt::format("\\textsuperscript{{{}}}", fmt::join(marks, ","));
}

/// A row of the table: a line of LaTeX for each line of its cells, further ones smaller.
std::string row_latex(const Table& table, const TableRow& row, const std::vector<size_t>& columns) {
  std::vector<std::vector<Line>> cells;
  size_t height = 1;
  for (const size_t at : columns) {
    cells.push_back(lines_of(row.cells[at], table.columns[at], table.cell));
    height = std::max(height, cells.back().size());
  }
  std::string tex;
  for (size_t line = 0; line < height; ++line) {
    std::vector<std::string> fields;
    for (size_t i = 0; i < columns.size(); ++i) {
      std::string field = line < cells[i].size() ? cells[i][line].tex : "";
      if (line > 0 && !field.empty()) field = "{\\scriptsize " + field + "}";
      if (line == 0) {
        if (wraps(table, columns[i])) field = "\\raggedright " + field;
        field += note_marks(row.cells[columns[i]]);
      }
      fields.push_back(std::move(field));
    }
    tex += fmt::format("{} \\tabularnewline\n", fmt::join(fields, " & "));
  }
  return height > 1 ? tex + "\\addlinespace[2pt]\n" : tex;
}

/// The notes that cells of these columns refer to.
std::string notes_below(const Table& table, const std::vector<size_t>& columns) {
  std::set<size_t> used;
  for (const TableRow& row : table.rows) {
    for (const size_t column : columns) used.insert(row.cells[column].notes.begin(), row.cells[column].notes.end());
  }
  std::string notes;
  for (const size_t at : used) {
    notes += fmt::format("{}\\textsuperscript{{{}}} {}", notes.empty() ? "" : " ", at + 1,
                         escape_latex(table.footnotes[at]));
  }
  return notes.empty() ? notes : fmt::format("\n\\par\\smallskip\\parbox{{\\linewidth}}{{\\scriptsize {}}}\n", notes);
}

std::string caption(const Table& table, size_t part, size_t parts) {
  std::string title = table.title;
  if (parts > 1) title += fmt::format(", part {} of {}", part + 1, parts);
  std::string text = fmt::format("\\textbf{{{}.}}", escape_latex(title));
  if (const std::string whole = caption_of(table); part == 0 && !whole.empty())
    text += fmt::format(" {}", escape_latex(whole));
  return fmt::format("\\caption{{{}}}\n\\label{{tab:{}{}}}\n\\vspace{{4pt}}\n", text, slug(table.id),
                     part == 0 ? "" : fmt::format("-{}", part + 1));
}

std::string part_latex(const Table& table, const std::vector<size_t>& columns, size_t part, size_t parts) {
  std::string shape;
  std::vector<std::string> head;
  double width = 0;
  for (const size_t at : columns) {
    width += column_width(table, at) + kColumnGap;
    shape += table.columns[at].numeric ? "r" : wraps(table, at) ? fmt::format("p{{{:.0f}pt}}", kWidestText) : "l";
    head.push_back(head_cell(table.columns[at]));
  }
  const char* environment = width > kPrintColumn ? "table*" : "table";
  std::string tex = fmt::format("\\begin{{{}}}[tp]\n\\centering\\footnotesize\\setlength{{\\tabcolsep}}{{4pt}}\n{}",
                                environment, caption(table, part, parts));
  tex += fmt::format(
      "\\resizebox{{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}}{{!}}{{%\n\\begin{{tabular}}{{@{{}}{}@{{}}}"
      "}\n"
      "\\toprule\n",
      shape);
  tex += group_heads(table, columns) + fmt::format("{} \\tabularnewline\n\\midrule\n", fmt::join(head, " & "));
  for (const TableRow& row : table.rows) tex += row_latex(table, row, columns);
  return tex + "\\bottomrule\n\\end{tabular}}\n" + notes_below(table, columns) +
         fmt::format("\\end{{{}}}\n", environment);
}

}  // namespace

std::string table_latex(const Table& table) {
  check_table(table);
  const std::vector<std::vector<size_t>> parts = parts_of(table);
  std::string tex;
  for (size_t part = 0; part < parts.size(); ++part) {
    if (part > 0) tex += "\n";
    tex += part_latex(table, parts[part], part, parts.size());
  }
  return tex;
}

}  // namespace kvarena::reports
