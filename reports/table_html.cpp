// A table model as an HTML <table>. Classes are styled by page/page.css.

#include <fmt/format.h>

#include <cmath>

#include "reports/cell_text.h"
#include "reports/emulated.h"
#include "reports/escape.h"
#include "reports/table.h"

namespace kvarena::reports {
namespace {

struct Chip {
  bool shown;
  const char* kind;
  const char* text;
  const char* meaning;
};

std::string chips(const TableCell& cell) {
  const Chip all[] = {
      {cell.simulated, "simulated", "sim", "simulated: this codec has no packed form, so no bytes are saved"},
      {cell.emulated, "emulated", kEmulatedMark, "emulated: this storage or link was not there"},
      {cell.modelled, "modelled", "model", "modelled on a hardware profile, not measured"},
  };
  std::string html;
  for (const Chip& chip : all) {
    if (chip.shown) {
      html += fmt::format(" <abbr class=\"chip {}\" title=\"{}\">{}</abbr>", chip.kind, chip.meaning, chip.text);
    }
  }
  return html;
}

std::string notes(const Table& table, const TableCell& cell) {
  std::string html;
  for (const size_t note : cell.notes) {
    html += fmt::format("<sup><a href=\"#{0}-note-{1}\">{1}</a></sup>", table.id, note + 1);
  }
  return html;
}

std::string part_html(const CellPart& part, const TableCell& cell, NumberFormat format) {
  const std::string text = escape_html(part.text);
  if (part.word == CellWord::mean)
    return fmt::format("<span class=\"v\">{}</span>", cell.best ? "<b>" + text + "</b>" : text);
  if (part.word != CellWord::difference) return text;
  constexpr const char* kClass[] = {"better", "worse", "none", "few", "differs"};
  const Difference& difference = *cell.difference;
  return fmt::format("<span class=\"diff {}\" title=\"{}, 95% interval {} to {}\">{}</span>",
                     kClass[static_cast<size_t>(difference.verdict)], verdict_name(difference.verdict),
                     format_signed(difference.interval.low, format), format_signed(difference.interval.high, format),
                     text);
}

/// The first line as it is, further ones smaller.
std::string number_html(const TableCell& cell, const Column& column, const std::string& format) {
  std::string html;
  for (const std::vector<CellPart>& line : cell_lines(cell, column, format)) {
    std::string text;
    for (const CellPart& part : line)
      text += escape_html(part.before) + part_html(part, cell, format_of(cell, column)) + escape_html(part.after);
    html += html.empty() ? text : fmt::format("<span class=\"ci\">{}</span>", text);
  }
  return html;
}

std::string content(const TableCell& cell, const Column& column, const std::string& format) {
  const auto state = [&](const char* word) {
    return fmt::format("<span class=\"state {0}\" title=\"{1}\">{0}</span><span class=\"why\">{1}</span>", word,
                       escape_html(cell.reason));
  };
  switch (cell.kind) {
    case CellKind::empty: return "<span class=\"none\">–</span>";
    case CellKind::text: return escape_html(cell.text);
    case CellKind::number: return number_html(cell, column, format);
    case CellKind::failed: return state("failed");
    case CellKind::inactive: return state("inactive");
    case CellKind::missing: return state("missing");
    case CellKind::not_comparable:
      return number_html(cell, column, format) +
             fmt::format("<span class=\"state unlike\" title=\"{}\">not comparable</span>", escape_html(cell.reason));
  }
  return {};
}

std::string cell_html(const Table& table, size_t at, const TableCell& cell) {
  const Column& column = table.columns[at];
  std::string attributes = fmt::format(" class=\"{}{}\"", column.numeric ? "num" : "txt", cell.best ? " best" : "");
  if (cell.has_value() && std::isfinite(cell.value)) {
    attributes += fmt::format(" data-v=\"{}\"", full_precision(cell.value));
  }
  if (!cell.detail.empty()) attributes += fmt::format(" title=\"{}\"", escape_html(cell.detail));
  const std::string inside = content(cell, column, table.cell) + chips(cell) + notes(table, cell);
  if (at == 0) return fmt::format("<th scope=\"row\"{}>{}</th>", attributes, inside);
  return fmt::format("<td{}>{}</td>", attributes, inside);
}

std::string badge_html(const Badge& badge) {
  if (badge.details.empty()) return fmt::format("<span class=\"badge\">{}</span>", escape_html(badge.label));
  std::string details;
  for (const auto& [name, value] : badge.details) {
    details += fmt::format("<dt>{}</dt><dd>{}</dd>", escape_html(name), escape_html(value));
  }
  return fmt::format("<details class=\"card\"><summary>{}</summary><dl>{}</dl></details>", escape_html(badge.label),
                     details);
}

std::string group_head(const Table& table, bool badges) {
  std::string html = "<tr class=\"groups\">";
  bool any = false;
  for (size_t at = 0; at < table.columns.size();) {
    size_t end = at + 1;
    const std::string& group = table.columns[at].group;
    while (!group.empty() && end < table.columns.size() && table.columns[end].group == group) ++end;
    any = any || !group.empty();
    html += group.empty() ? "<td></td>"
                          : fmt::format("<th colspan=\"{}\" scope=\"colgroup\">{}</th>", end - at, escape_html(group));
    at = end;
  }
  return any ? html + (badges ? "<td></td></tr>" : "</tr>") : std::string();
}

std::string head(const Table& table, bool badges) {
  constexpr const char* kArrow[] = {" <span class=\"dir\" title=\"higher is better\">↑</span>",
                                    " <span class=\"dir\" title=\"lower is better\">↓</span>", ""};
  std::string html = "<thead>" + group_head(table, badges) + "<tr>";
  for (const Column& column : table.columns) {
    const std::string unit =
        column.unit.empty() ? "" : fmt::format(" <span class=\"unit\">{}</span>", escape_html(column.unit));
    html += fmt::format("<th scope=\"col\" class=\"{}\">{}{}{}</th>", column.numeric ? "num" : "txt",
                        escape_html(column.title), unit, kArrow[static_cast<size_t>(column.better)]);
  }
  if (badges) html += fmt::format("<th scope=\"col\" class=\"txt\">{}</th>", escape_html(table.badge_title));
  return html + "</tr></thead>\n";
}

std::string body(const Table& table, bool badges) {
  constexpr const char* kRole[] = {"", " class=\"baseline\"", " class=\"floor\""};
  std::string html = "<tbody>\n";
  for (const TableRow& row : table.rows) {
    html += fmt::format("<tr{}>", kRole[static_cast<size_t>(row.role)]);
    for (size_t at = 0; at < row.cells.size(); ++at) html += cell_html(table, at, row.cells[at]);
    if (badges) html += "<td class=\"txt\">" + (row.badge ? badge_html(*row.badge) : "") + "</td>";
    html += "</tr>\n";
  }
  return html + "</tbody>";
}

}  // namespace

std::string table_html(const Table& table) {
  check_table(table);
  const bool badges = table.has_badges();
  std::string html = fmt::format("<div class=\"table\" id=\"{}\" tabindex=\"0\"><table{}>\n", table.id,
                                 table.sortable ? " class=\"sortable\"" : "");
  if (!table.title.empty()) html += fmt::format("<caption>{}</caption>\n", escape_html(table.title));
  html += head(table, badges) + body(table, badges) + "</table></div>\n";
  if (const std::string caption = caption_of(table); !caption.empty())
    html += fmt::format("<p class=\"note\">{}</p>\n", escape_html(caption));
  html += fmt::format("<p class=\"save\">Save as <a download=\"{}.csv\" href=\"{}\">CSV</a></p>\n", table.id,
                      data_url("text/csv;charset=utf-8", table_csv(table)));
  if (!table.footnotes.empty()) {
    html += "<ol class=\"notes\">";
    for (size_t at = 0; at < table.footnotes.size(); ++at) {
      html += fmt::format("<li id=\"{}-note-{}\">{}</li>", table.id, at + 1, escape_html(table.footnotes[at]));
    }
    html += "</ol>\n";
  }
  return html;
}

}  // namespace kvarena::reports
