// A document as Markdown, LaTeX and CSV.

#include <fmt/format.h>

#include "harness/core/error.h"
#include "reports/document.h"
#include "reports/escape.h"

namespace kvarena::reports {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

// A fence longer than any run of backquotes inside.
std::string fenced(const std::string& text) {
  size_t longest = 2, run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  return fence + "\n" + clean_text(text) + "\n" + fence + "\n";
}

std::string markdown_block(const Block& block) {
  return std::visit(Overloaded{[](const Paragraph& paragraph) { return escape_markdown(paragraph.text) + "\n"; },
                               [](const BulletList& list) {
                                 std::string text;
                                 for (const std::string& item : list.items) text += "- " + escape_markdown(item) + "\n";
                                 return text;
                               },
                               [](const Facts& facts) {
                                 std::string text =
                                     facts.title.empty() ? "" : "**" + escape_markdown(facts.title) + "**\n\n";
                                 for (const auto& [name, value] : facts.items) {
                                   text += "- " + escape_markdown(name) + ": " + escape_markdown(value) + "\n";
                                 }
                                 return text;
                               },
                               [](const Listing& listing) {
                                 return "**" + escape_markdown(listing.title) + "**\n\n" + fenced(listing.text);
                               },
                               [](const Table& table) { return table_markdown(table); },
                               [](const Chart& chart) {
                                 return "*Chart: " + escape_markdown(chart.title) + "* (drawn in the HTML report). " +
                                        escape_markdown(chart.caption) + "\n";
                               }},
                    block);
}

// A listing in LaTeX is a source of trouble and no paper prints one; the HTML report has it.
std::string latex_block(const Block& block) {
  return std::visit(
      Overloaded{[](const Paragraph& paragraph) { return escape_latex(paragraph.text) + "\n"; },
                 [](const BulletList& list) {
                   if (list.items.empty()) return std::string();
                   std::string text = "\\begin{itemize}\n";
                   for (const std::string& item : list.items) text += "\\item " + escape_latex(item) + "\n";
                   return text + "\\end{itemize}\n";
                 },
                 [](const Facts& facts) {
                   std::string text = "\\paragraph{" + escape_latex(facts.title) + "}";
                   for (size_t at = 0; at < facts.items.size(); ++at) {
                     text += (at == 0 ? " " : "; ") + escape_latex(facts.items[at].first) + ": " +
                             escape_latex(facts.items[at].second);
                   }
                   return text + ".\n";
                 },
                 [](const Listing&) { return std::string(); }, [](const Table& table) { return table_latex(table); },
                 [](const Chart& chart) { return "% Chart in the HTML report: " + escape_latex(chart.title) + "\n"; }},
      block);
}

}  // namespace

std::string document_markdown(const Document& document) {
  std::string text = "# " + escape_markdown(document.title) + "\n\n";
  if (!document.subtitle.empty()) text += escape_markdown(document.subtitle) + "\n\n";
  for (const Section& section : document.sections) {
    text += "## " + escape_markdown(section.title) + "\n\n";
    for (const Block& block : section.blocks) text += markdown_block(block) + "\n";
  }
  return text;
}

std::string document_latex(const Document& document) {
  std::string text = "% Needs \\usepackage{booktabs}.\n\\section*{" + escape_latex(document.title) + "}\n";
  if (!document.subtitle.empty()) text += escape_latex(document.subtitle) + "\n\n";
  for (const Section& section : document.sections) {
    text += "\\subsection*{" + escape_latex(section.title) + "}\n";
    for (const Block& block : section.blocks) text += latex_block(block) + "\n";
  }
  return text;
}

std::string document_csv(const Document& document) {
  std::string csv = kTidyCsvHead;
  for (const Section& section : document.sections) {
    for (const Block& block : section.blocks) {
      if (const Table* table = std::get_if<Table>(&block)) csv += table_tidy_csv(*table);
    }
  }
  return csv;
}

std::string write_document(const Document& document, Format format) {
  switch (format) {
    case Format::html: return document_html(document);
    case Format::markdown: return document_markdown(document);
    case Format::latex: return document_latex(document);
    case Format::csv: return document_csv(document);
  }
  return {};
}

Format format_from_name(const std::string& name) {
  if (name == "html") return Format::html;
  if (name == "markdown" || name == "md") return Format::markdown;
  if (name == "latex" || name == "tex") return Format::latex;
  if (name == "csv") return Format::csv;
  fail({.place = "report format",
        .found = name,
        .expected = "html, markdown, latex or csv",
        .nearest = nearest_name(name, {"html", "markdown", "latex", "csv"})});
}

}  // namespace kvarena::reports
