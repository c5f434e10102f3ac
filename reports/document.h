#pragma once
// A report as data: sections of text, tables and charts. Writers turn it into HTML, Markdown, LaTeX or CSV.

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "reports/chart.h"
#include "reports/table.h"

namespace kvarena::reports {

struct Paragraph {
  std::string text;
};

struct BulletList {
  std::vector<std::string> items;
};

/// Names and values: provenance, a protocol card.
struct Facts {
  std::string title;
  std::vector<std::pair<std::string, std::string>> items;
  std::string badge;  // label that rows of tables refer to; empty for none
};

/// Text kept as it is: a config.
struct Listing {
  std::string title;
  std::string text;
};

using Block = std::variant<Paragraph, BulletList, Facts, Listing, Table, Chart>;

struct Section {
  std::string id;
  std::string title;
  std::vector<Block> blocks;
  bool folded = false;  // closed at first in HTML
};

struct Document {
  std::string title;
  std::string subtitle;
  std::vector<Section> sections;
};

enum class Format { html, markdown, latex, csv };

/// One self-contained page: no network, opens from disk, light and dark, sortable tables, good on a phone and on paper.
[[nodiscard]] std::string document_html(const Document& document);
/// Charts become a line that names them: their numbers stand in the tables.
[[nodiscard]] std::string document_markdown(const Document& document);
/// Tables and texts to paste into a paper; the comment at the top names the package needed.
[[nodiscard]] std::string document_latex(const Document& document);
/// Every table in one tidy file: one record a cell (kTidyCsvHead).
[[nodiscard]] std::string document_csv(const Document& document);

[[nodiscard]] std::string write_document(const Document& document, Format format);

/// "html", "markdown" or "md", "latex" or "tex", "csv"; throws UserError naming what is allowed.
[[nodiscard]] Format format_from_name(const std::string& name);

}  // namespace kvarena::reports
