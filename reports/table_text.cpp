// A table model as Markdown and CSV.

#include <fmt/format.h>

#include <cmath>

#include "harness/core/markdown.h"
#include "reports/cell_text.h"
#include "reports/escape.h"
#include "reports/table.h"

namespace kvarena::reports {
namespace {

// --- Markdown

std::string markdown_number(const TableCell& cell, const Column& column, const std::string& format) {
  std::string text;
  for (const std::vector<CellPart>& line : cell_lines(cell, column, format)) {
    if (!text.empty()) text += ' ';
    for (const CellPart& part : line) {
      const bool bold = cell.best && part.word == CellWord::mean;
      text += escape_markdown(part.before) + (bold ? "**" + part.text + "**" : escape_markdown(part.text)) +
              escape_markdown(part.after);
    }
  }
  const std::string words = origin_words(cell);
  return words.empty() ? text : text + " *" + words + "*";
}

std::string markdown_cell(const TableCell& cell, const Column& column, const std::string& format) {
  switch (cell.kind) {
    case CellKind::empty: return "–";
    case CellKind::text: return escape_markdown(cell.text);
    case CellKind::failed: return "failed: " + escape_markdown(cell.reason);
    case CellKind::inactive: return "inactive: " + escape_markdown(cell.reason);
    case CellKind::missing: return "missing: " + escape_markdown(cell.reason);
    case CellKind::number:
    case CellKind::not_comparable: return markdown_number(cell, column, format);
  }
  return {};
}

// --- CSV

struct Extras {  // which further columns a column of the table needs
  bool interval = false;
  bool difference = false;
  bool samples = false;
  bool published = false;
  bool remark = false;
};

Extras extras_of(const Table& table, size_t at) {
  Extras extras;
  for (const TableRow& row : table.rows) {
    extras.interval = extras.interval || row.cells[at].interval.has_value();
    extras.difference = extras.difference || row.cells[at].difference.has_value();
    extras.samples = extras.samples || row.cells[at].samples.has_value();
    extras.published = extras.published || row.cells[at].published.has_value();
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
  if (extras.samples) fields.push_back(cell.samples ? fmt::format("{}", *cell.samples) : "");
  if (extras.published) fields.push_back(cell.published ? full_precision(*cell.published) : "");
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
    head.push_back(escape_markdown((column.group.empty() ? "" : column.group + ": ") + column_head(column)));
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
      fields.push_back(markdown_cell(row.cells[at], table.columns[at], table.cell));
      for (const size_t note : row.cells[at].notes) fields.back() += fmt::format(" \\[{}\\]", note + 1);
    }
    if (badges) fields.push_back(row.badge ? escape_markdown(row.badge->label) : "");
    text += markdown_row(fields);
  }
  if (const std::string caption = caption_of(table); !caption.empty())
    text += fmt::format("\n{}\n", escape_markdown(caption));
  for (size_t at = 0; at < table.footnotes.size(); ++at) {
    text += fmt::format("\n\\[{}\\] {}\n", at + 1, escape_markdown(table.footnotes[at]));
  }
  return text;
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
    if (extras[at].samples) head.push_back(title + " samples");
    if (extras[at].published) head.push_back(title + " published");
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
      append_extras(fields, cell, {.interval = true, .difference = true, .samples = true, .published = true});
      fields.push_back(cell.kind == CellKind::text ? cell.text : "");
      fields.push_back(cell_remark(cell));
      csv += csv_line(fields);
    }
  }
  return csv;
}

}  // namespace kvarena::reports
