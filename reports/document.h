#pragma once
// A report as sections of text, tables and charts, and the formats it is written in.

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/results/invented_data.h"
#include "reports/chart.h"
#include "reports/table.h"

namespace kvarena::reports {

struct Section {
  std::string id;
  std::string title;
  std::vector<std::string> paragraphs;
  std::vector<Table> tables;
  std::vector<Chart> charts;
};

struct Document {
  std::string title;
  std::vector<std::string> introduction;  // what is compared; its limitations
  std::vector<Section> sections;
  std::vector<std::pair<std::string, std::string>> provenance;  // name and value
};

/// Says in the title, and below every table and chart, that samples were made by this project in the place of a
/// benchmark's; nothing where none were.
void mark_invented(Document& document, std::span<const results::InventedData> invented);

enum class Format { html, markdown, latex, csv };

/// By a file's ending (.html, .md, .tex, .csv) or a format's name. Throws UserError naming what is allowed.
[[nodiscard]] Format parse_format(const std::string& text);

/// HTML is one file that opens from disk without a network; Markdown and LaTeX hold the tables and texts, CSV one tidy
/// record a cell.
[[nodiscard]] std::string render(const Document& document, Format format);

}  // namespace kvarena::reports
