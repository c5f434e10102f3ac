// A document as one page that needs nothing but itself.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "reports/document.h"
#include "reports/escape.h"
#include "reports/page_files.h"

namespace kvarena::reports {
namespace {

std::string facts_html(const Facts& facts) {
  std::string html = facts.badge.empty() ? "<div class=\"facts\">"
                                         : fmt::format("<div class=\"facts\" id=\"card-{}\">", slug(facts.badge));
  if (!facts.title.empty()) html += fmt::format("<h3>{}</h3>", escape_html(facts.title));
  html += "<dl>";
  for (const auto& [name, value] : facts.items) {
    html += fmt::format("<dt>{}</dt><dd>{}</dd>", escape_html(name), escape_html(value));
  }
  return html + "</dl></div>\n";
}

struct BlockHtml {
  std::string operator()(const Paragraph& paragraph) const {
    return fmt::format("<p>{}</p>\n", escape_html(paragraph.text));
  }
  std::string operator()(const BulletList& list) const {
    std::string html = "<ul>";
    for (const std::string& item : list.items) html += fmt::format("<li>{}</li>\n", escape_html(item));
    return html + "</ul>\n";
  }
  std::string operator()(const Facts& facts) const { return facts_html(facts); }
  std::string operator()(const Listing& listing) const {
    return fmt::format("<details class=\"fold\"><summary>{}</summary><pre>{}</pre></details>\n",
                       escape_html(listing.title), escape_html(listing.text));
  }
  std::string operator()(const Table& table) const { return table_html(table); }
  std::string operator()(const Chart& chart) const { return chart_html(chart); }
};

std::string section_html(const Section& section) {
  std::string blocks;
  for (const Block& block : section.blocks) blocks += std::visit(BlockHtml{}, block);
  if (section.folded) blocks = fmt::format("<details class=\"fold\"><summary>Show</summary>{}</details>", blocks);
  return fmt::format("<section>\n<h2 id=\"{}\">{}</h2>\n{}</section>\n", slug(section.id), escape_html(section.title),
                     blocks);
}

std::string contents(const Document& document) {
  std::string html = "<nav aria-label=\"Contents\"><ul>";
  for (const Section& section : document.sections) {
    html += fmt::format("<li><a href=\"#{}\">{}</a></li>", slug(section.id), escape_html(section.title));
  }
  return html + "</ul></nav>";
}

}  // namespace

std::string document_html(const Document& document) {
  // The policy makes the promise of a page without a network one that the browser keeps.
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'; img-src data:\">\n"
      "<title>{}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{}</style>\n</head>\n<body>\n",
      escape_html(document.title), kPageStyle);
  html += fmt::format(
      "<header><button id=\"theme\" hidden>light / dark</button><h1>{}</h1><p "
      "class=\"sub\">{}</p>{}</header>\n<main>\n",
      escape_html(document.title), escape_html(document.subtitle), contents(document));
  for (const Section& section : document.sections) html += section_html(section);
  html += "</main>\n<footer>Written by kvarena. This file needs no network.</footer>\n<script>\n";
  return html + kPageScript + "</script>\n</body>\n</html>\n";
}

}  // namespace kvarena::reports
