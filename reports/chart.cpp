// A chart in a page: both widths, and what can be saved from it.

#include "reports/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reports/emulated.h"
#include "reports/escape.h"
#include "reports/number.h"
#include "reports/vega_view.h"

namespace kvarena::reports {
namespace {

void collect_rows(const nlohmann::json& part, std::vector<const nlohmann::json*>& rows) {
  if (part.contains("data") && part["data"].contains("values")) {
    for (const nlohmann::json& row : part["data"]["values"]) rows.push_back(&row);
  }
  if (!part.contains("layer")) return;
  for (const nlohmann::json& layer : part["layer"]) collect_rows(layer, rows);
}

std::string link(const Chart& chart, const char* extension, const char* mime, const std::string& content,
                 const char* text) {
  return fmt::format("<a download=\"{}.{}\" href=\"{}\">{}</a>", chart.id, extension, data_url(mime, content), text);
}

}  // namespace

void set_title(Chart& chart, const std::string& title) {
  nlohmann::json spec = nlohmann::json::parse(chart.spec);
  spec["title"] = clean_text(title);
  chart.title = title;
  chart.spec = spec.dump();
}

std::string chart_csv(const nlohmann::json& spec) {
  std::vector<const nlohmann::json*> rows;
  collect_rows(spec, rows);
  std::vector<std::string> columns;
  for (const nlohmann::json* row : rows) {
    for (const auto& [name, value] : row->items()) {
      if (std::find(columns.begin(), columns.end(), name) == columns.end()) columns.push_back(name);
    }
  }
  std::string csv;
  for (size_t at = 0; at < columns.size(); ++at) csv += fmt::format("{}{}", at == 0 ? "" : ",", csv_field(columns[at]));
  csv += "\r\n";
  for (const nlohmann::json* row : rows) {
    for (size_t at = 0; at < columns.size(); ++at) {
      const auto value = row->find(columns[at]);
      csv += fmt::format("{}{}", at == 0 ? "" : ",", value == row->end() ? "" : csv_field(category_text(*value)));
    }
    csv += "\r\n";
  }
  return csv;
}

std::string chart_html(const Chart& chart) {
  const nlohmann::json spec = nlohmann::json::parse(chart.spec);
  std::string html =
      fmt::format("<figure class=\"chart\" id=\"{}\">\n<h3>{}</h3>\n", chart.id, escape_html(chart.title));
  html += "<div class=\"wide\">" + render_svg(spec, {.width = 760, .title = false}) + "</div>";
  html += "<div class=\"narrow\">" + render_svg(spec, {.width = 350, .title = false}) + "</div>\n<figcaption>";
  if (const std::string caption = marked_caption(chart.caption, chart.emulated); !caption.empty())
    html += fmt::format("<p class=\"note\">{}</p>", escape_html(caption));
  html += "<p class=\"save\">Save as " +
          link(chart, "svg", "image/svg+xml", render_svg(spec, {.width = 760, .standalone = true}), "SVG") + " · " +
          link(chart, "csv", "text/csv;charset=utf-8", chart_csv(spec), "CSV") + " · " +
          link(chart, "vl.json", "application/json", chart.spec, "Vega-Lite") + "</p></figcaption></figure>\n";
  return html;
}

}  // namespace kvarena::reports
