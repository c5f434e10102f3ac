// A table model as Markdown, LaTeX and CSV.

#include <fmt/format.h>

#include <cmath>

#include "harness/core/markdown.h"
#include "reports/escape.h"
#include "reports/table.h"

namespace kvarena::reports {
namespace {

std::string plain_number(const TableCell& cell, double value, NumberFormat format) {
  return cell.is_signed ? format_signed(value, format) : format_number(value, format);
}

std::string head_text(const Column& column) {
  constexpr const char* kArrow[] = {" ↑", " ↓", ""};
  return column.title + (column.unit.empty() ? "" : " (" + column.unit + ")") +
         kArrow[static_cast<size_t>(column.better)];
}

// "sim, emu" and the like; shared by the formats that have no tooltips.
std::string flag_words(const TableCell& cell) {
  std::string words;
  const auto add = [&](bool shown, const char* word) {
    if (shown) words += (words.empty() ? "" : ", ") + std::string(word);
  };
  add(cell.simulated, "simulated");
  add(cell.emulated, "emulated");
  add(cell.modelled, "modelled");
  add(cell.kind == CellKind::not_comparable, "not comparable");
  return words;
}

// --- Markdown

std::string markdown_cell(const TableCell& cell, const Column& column) {
  std::string text;
  switch (cell.kind) {
    case CellKind::empty: return "–";
    case CellKind::text: return escape_markdown(cell.text);
    case CellKind::failed: return "failed: " + escape_markdown(cell.reason);
    case CellKind::inactive: return "inactive: " + escape_markdown(cell.reason);
    case CellKind::number:
    case CellKind::not_comparable: text = plain_number(cell, cell.value, format_of(cell, column)); break;
  }
  if (cell.best) text = "**" + text + "**";
  if (cell.interval) {
    text += fmt::format(" ({} to {})", plain_number(cell, cell.interval->low, format_of(cell, column)),
                        plain_number(cell, cell.interval->high, format_of(cell, column)));
  }
  if (cell.difference) text += fmt::format(" {}", difference_text(*cell.difference, format_of(cell, column)));
  const std::string words = flag_words(cell);
  if (!words.empty()) text += " *" + words + "*";
  return text;
}

// --- LaTeX

std::string latex_cell(const TableCell& cell, const Column& column) {
  std::string text;
  switch (cell.kind) {
    case CellKind::empty: return "--";
    case CellKind::text: return escape_latex(cell.text);
    case CellKind::failed: return "\\textit{failed}";
    case CellKind::inactive: return "\\textit{inactive}";
    case CellKind::number:
    case CellKind::not_comparable: text = escape_latex(plain_number(cell, cell.value, format_of(cell, column))); break;
  }
  if (cell.best) text = "\\textbf{" + text + "}";
  if (cell.difference) {
    constexpr const char* kSign[] = {"\\uparrow", "\\downarrow", "\\approx", "?", "\\neq"};
    text += fmt::format("$^{{{}}}$", kSign[static_cast<size_t>(cell.difference->verdict)]);
  }
  if (cell.interval) {
    text += escape_latex(fmt::format(" ({}–{})", plain_number(cell, cell.interval->low, format_of(cell, column)),
                                     plain_number(cell, cell.interval->high, format_of(cell, column))));
  }
  const std::string words = flag_words(cell);
  return words.empty() ? text : text + " \\textit{" + words + "}";
}

std::string latex_notes(const TableCell& cell) {
  if (cell.notes.empty()) return {};
  std::vector<size_t> marks;
  for (const size_t note : cell.notes) marks.push_back(note + 1);
  return fmt::format("\\textsuperscript{{{}}}", fmt::join(marks, ","));
}

// A multi-column head over each group, with its rule; empty when no column has a group.
std::string latex_groups(const Table& table, bool badges) {
  std::string heads, rules;
  for (size_t at = 0; at < table.columns.size();) {
    size_t end = at + 1;
    const std::string& group = table.columns[at].group;
    while (!group.empty() && end < table.columns.size() && table.columns[end].group == group) ++end;
    if (at > 0) heads += " & ";
    if (!group.empty()) {
      heads += fmt::format("\\multicolumn{{{}}}{{c}}{{{}}}", end - at, escape_latex(group));
      rules += fmt::format("\\cmidrule(lr){{{}-{}}}", at + 1, end);
    }
    at = end;
  }
  return rules.empty() ? rules : heads + (badges ? " &" : "") + " \\\\\n" + rules + "\n";
}

// --- CSV

struct Extras {  // which further columns a column of the table needs
  bool interval = false;
  bool difference = false;
  bool remark = false;
};

Extras extras_of(const Table& table, size_t at) {
  Extras extras;
  for (const TableRow& row : table.rows) {
    extras.interval = extras.interval || row.cells[at].interval.has_value();
    extras.difference = extras.difference || row.cells[at].difference.has_value();
    extras.remark = extras.remark || !cell_remark(row.cells[at]).empty();
  }
  return extras;
}

std::string csv_line(const std::vector<std::string>& fields) {
  std::string line;
  for (size_t at = 0; at < fields.size(); ++at) line += fmt::format("{}{}", at == 0 ? "" : ",", csv_field(fields[at]));
  return line + "\r\n";
}

std::string csv_value(const TableCell& cell) {
  if (cell.kind == CellKind::text) return cell.text;
  return cell.has_value() ? full_precision(cell.value) : std::string();
}

void append_extras(std::vector<std::string>& fields, const TableCell& cell, const Extras& extras) {
  if (extras.interval) {
    fields.push_back(cell.interval ? full_precision(cell.interval->low) : "");
    fields.push_back(cell.interval ? full_precision(cell.interval->high) : "");
  }
  if (extras.difference) {
    const auto& difference = cell.difference;
    fields.push_back(difference ? full_precision(difference->value) : "");
    fields.push_back(difference ? full_precision(difference->interval.low) : "");
    fields.push_back(difference ? full_precision(difference->interval.high) : "");
    fields.push_back(difference ? verdict_name(difference->verdict) : "");
  }
  if (extras.remark) fields.push_back(cell_remark(cell));
}

// "qasper: F1 (percent)": names a column alone, out of its table.
std::string csv_head(const Column& column) {
  return (column.group.empty() ? "" : column.group + ": ") + column.title +
         (column.unit.empty() ? "" : " (" + column.unit + ")");
}

const char* role_name(RowRole role) {
  switch (role) {
    case RowRole::ordinary: return "";
    case RowRole::baseline: return "baseline";
    case RowRole::noise_floor: return "noise floor";
  }
  return "";
}

}  // namespace

std::string table_markdown(const Table& table) {
  check_table(table);
  const bool badges = table.has_badges();
  std::string text;
  if (!table.title.empty()) text += fmt::format("**{}**\n\n", escape_markdown(table.title));
  std::vector<std::string> head, rule;
  for (const Column& column : table.columns) {
    head.push_back(escape_markdown((column.group.empty() ? "" : column.group + ": ") + head_text(column)));
    rule.emplace_back(column.numeric ? "---:" : ":---");
  }
  if (badges) {
    head.push_back(escape_markdown(table.badge_title));
    rule.emplace_back(":---");
  }
  text += markdown_row(head) + markdown_row(rule);
  for (const TableRow& row : table.rows) {
    std::vector<std::string> fields;
    for (size_t at = 0; at < row.cells.size(); ++at) {
      fields.push_back(markdown_cell(row.cells[at], table.columns[at]));
      for (const size_t note : row.cells[at].notes) fields.back() += fmt::format(" \\[{}\\]", note + 1);
    }
    if (badges) fields.push_back(row.badge ? escape_markdown(row.badge->label) : "");
    text += markdown_row(fields);
  }
  if (!table.caption.empty()) text += fmt::format("\n{}\n", escape_markdown(table.caption));
  for (size_t at = 0; at < table.footnotes.size(); ++at) {
    text += fmt::format("\n\\[{}\\] {}\n", at + 1, escape_markdown(table.footnotes[at]));
  }
  return text;
}

std::string table_latex(const Table& table) {
  check_table(table);
  const bool badges = table.has_badges();
  std::string shape;
  for (const Column& column : table.columns) shape += column.numeric ? 'r' : 'l';
  if (badges) shape += 'l';
  std::string tex = "\\begin{table}[t]\n\\centering\n";
  tex += fmt::format("\\caption{{{}}}\n\\label{{tab:{}}}\n\\begin{{tabular}}{{{}}}\n\\toprule\n",
                     escape_latex(table.title), slug(table.id), shape);
  std::vector<std::string> head;
  for (const Column& column : table.columns) head.push_back(escape_latex(head_text(column)));
  if (badges) head.push_back(escape_latex(table.badge_title));
  tex += latex_groups(table, badges) + fmt::format("{} \\\\\n\\midrule\n", fmt::join(head, " & "));
  for (const TableRow& row : table.rows) {
    std::vector<std::string> fields;
    for (size_t at = 0; at < row.cells.size(); ++at) {
      fields.push_back(latex_cell(row.cells[at], table.columns[at]) + latex_notes(row.cells[at]));
    }
    if (badges) fields.push_back(row.badge ? escape_latex(row.badge->label) : "");
    tex += fmt::format("{} \\\\\n", fmt::join(fields, " & "));
  }
  tex += "\\bottomrule\n\\end{tabular}\n";
  if (!table.caption.empty()) tex += "\n\\medskip\\footnotesize " + escape_latex(table.caption) + "\n";
  for (size_t at = 0; at < table.footnotes.size(); ++at) {
    tex += fmt::format("\n\\footnotesize\\textsuperscript{{{}}} {}\n", at + 1, escape_latex(table.footnotes[at]));
  }
  return tex + "\\end{table}\n";
}

std::string table_csv(const Table& table) {
  check_table(table);
  const bool badges = table.has_badges();
  std::vector<std::string> head;
  std::vector<Extras> extras;
  for (size_t at = 0; at < table.columns.size(); ++at) {
    extras.push_back(extras_of(table, at));
    const std::string title = csv_head(table.columns[at]);
    head.push_back(title);
    if (extras[at].interval) head.insert(head.end(), {title + " low", title + " high"});
    if (extras[at].difference) {
      head.insert(head.end(),
                  {title + " difference", title + " difference low", title + " difference high", title + " verdict"});
    }
    if (extras[at].remark) head.push_back(title + " remark");
  }
  if (badges) head.push_back(table.badge_title);
  std::string csv = csv_line(head);
  for (const TableRow& row : table.rows) {
    std::vector<std::string> fields;
    for (size_t at = 0; at < row.cells.size(); ++at) {
      fields.push_back(csv_value(row.cells[at]));
      append_extras(fields, row.cells[at], extras[at]);
    }
    if (badges) fields.push_back(row.badge ? row.badge->label : "");
    csv += csv_line(fields);
  }
  return csv;
}

std::string table_tidy_csv(const Table& table) {
  check_table(table);
  std::string csv;
  for (const TableRow& row : table.rows) {
    // A row is named by its leading text cells.
    std::string name;
    size_t first = 0;
    for (; first < row.cells.size() && row.cells[first].kind == CellKind::text; ++first) {
      name += (first == 0 ? "" : " / ") + row.cells[first].text;
    }
    if (first == row.cells.size()) first = row.cells.empty() ? 0 : 1, name = row.cells.empty() ? "" : row.cells[0].text;
    for (size_t at = first; at < row.cells.size(); ++at) {
      const TableCell& cell = row.cells[at];
      if (cell.kind == CellKind::empty) continue;
      const Column& column = table.columns[at];
      std::vector<std::string> fields = {table.id,
                                         name,
                                         role_name(row.role),
                                         row.badge ? row.badge->label : "",
                                         (column.group.empty() ? "" : column.group + ": ") + column.title,
                                         column.unit,
                                         cell.has_value() ? full_precision(cell.value) : ""};
      append_extras(fields, cell, {.interval = true, .difference = true});
      fields.push_back(cell.kind == CellKind::text ? cell.text : "");
      fields.push_back(cell_remark(cell));
      csv += csv_line(fields);
    }
  }
  return csv;
}

}  // namespace kvarena::reports
