#include "reports/document.h"

#include <fmt/format.h>

#include "harness/core/error.h"
#include "reports/escape.h"
#include "reports/page/page_files.h"

namespace kvarena::reports {
namespace {

std::string html_paragraphs(const std::vector<std::string>& paragraphs) {
  std::string html;
  for (const std::string& text : paragraphs) html += fmt::format("<p>{}</p>\n", escape_html(text));
  return html;
}

std::string html_section(const Section& section) {
  std::string html = fmt::format("<section id=\"section-{}\">\n<h2>{}</h2>\n", section.id, escape_html(section.title));
  html += html_paragraphs(section.paragraphs);
  for (const Table& table : section.tables) html += table_html(table);
  for (const Chart& chart : section.charts) html += chart_html(chart);
  return html + "</section>\n";
}

std::string html_provenance(const Document& document) {
  if (document.provenance.empty()) return {};
  std::string rows;
  for (const auto& [name, value] : document.provenance) {
    rows += fmt::format("<dt>{}</dt><dd>{}</dd>", escape_html(name), escape_html(value));
  }
  return fmt::format(
      "<section id=\"provenance\"><h2>Provenance</h2><details><summary>Where these numbers come from</summary>"
      "<dl>{}</dl></details></section>\n",
      rows);
}

std::string html(const Document& document) {
  std::string contents;
  for (const Section& section : document.sections) {
    contents += fmt::format("<li><a href=\"#section-{}\">{}</a></li>", section.id, escape_html(section.title));
  }
  // The policy makes the browser keep the promise of a page that loads nothing.
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'; img-src data:\">"
      "<link rel=\"icon\" href=\"data:,\"><title>{0}</title>\n<style>{1}</style></head>\n<body>\n"
      "<button id=\"theme\" hidden>light / dark</button><h1>{0}</h1>\n",
      escape_html(document.title), kPageStyle);
  page += html_paragraphs(document.introduction);
  if (!document.provenance.empty()) contents += "<li><a href=\"#provenance\">Provenance</a></li>";
  page += fmt::format("<nav><ul>{}</ul></nav>\n", contents);
  for (const Section& section : document.sections) page += html_section(section);
  return page + html_provenance(document) + fmt::format("<script>{}</script>\n</body></html>\n", kPageScript);
}

std::string markdown(const Document& document) {
  std::string text = fmt::format("# {}\n", escape_markdown(document.title));
  for (const std::string& paragraph : document.introduction) text += fmt::format("\n{}\n", escape_markdown(paragraph));
  for (const Section& section : document.sections) {
    text += fmt::format("\n## {}\n", escape_markdown(section.title));
    for (const std::string& paragraph : section.paragraphs) text += fmt::format("\n{}\n", escape_markdown(paragraph));
    for (const Table& table : section.tables) text += fmt::format("\n{}", table_markdown(table));
  }
  if (!document.provenance.empty()) text += "\n## Provenance\n\n";
  for (const auto& [name, value] : document.provenance) {
    text += fmt::format("- {}: {}\n", escape_markdown(name), escape_markdown(value));
  }
  return text;
}

std::string latex(const Document& document) {
  std::string text = fmt::format("% {}\n% \\input this into a document with \\usepackage{{booktabs,graphicx}}\n",
                                 escape_latex(document.title));
  for (const Section& section : document.sections) {
    for (const Table& table : section.tables) text += fmt::format("\n{}", table_latex(table));
  }
  return text;
}

std::string csv(const Document& document) {
  std::string text = kTidyCsvHead;
  for (const Section& section : document.sections) {
    for (const Table& table : section.tables) text += table_tidy_csv(table);
  }
  return text;
}

}  // namespace

void mark_invented(Document& document, std::span<const results::InventedData> invented) {
  const std::string mark = results::invented_mark(invented);
  if (mark.empty()) return;
  document.title += fmt::format(" ({})", mark);
  const auto append = [&](std::string& caption) {
    caption += fmt::format("{}Data: {}.", caption.empty() ? "" : " ", mark);
  };
  for (Section& section : document.sections) {
    for (Table& table : section.tables) append(table.caption);
    for (Chart& chart : section.charts) {
      append(chart.caption);
      set_title(chart, fmt::format("{} ({})", chart.title, mark));
    }
  }
}

Format parse_format(const std::string& text) {
  if (text == "html" || text.ends_with(".html") || text.ends_with(".htm")) return Format::html;
  if (text == "md" || text == "markdown" || text.ends_with(".md")) return Format::markdown;
  if (text == "tex" || text == "latex" || text.ends_with(".tex")) return Format::latex;
  if (text == "csv" || text.ends_with(".csv")) return Format::csv;
  fail({.place = "report format",
        .found = text,
        .expected = "html, md, tex or csv, or a file with such an ending",
        .action = "name the format with --format"});
}

std::string render(const Document& document, Format format) {
  switch (format) {
    case Format::html: return html(document);
    case Format::markdown: return markdown(document);
    case Format::latex: return latex(document);
    case Format::csv: return csv(document);
  }
  return {};
}

}  // namespace kvarena::reports
