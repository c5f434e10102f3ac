#pragma once
// Charts are Vega-Lite v5 specifications; this renders the part of the language that our specifications use to SVG.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace kvarena::reports {

/// A chart of a report. The specification holds its data inline, so it is the whole chart: it opens in any Vega-Lite
/// viewer and its data table is its CSV.
struct Chart {
  std::string id;         // lower-case with hyphens; unique in its document
  std::string title;      // also in the specification
  std::string caption;    // how to read it
  std::string spec;       // Vega-Lite v5 as JSON text
  bool emulated = false;  // whether it shows numbers that came over an emulated link
};

/// Sets the title of a chart, and of its specification.
void set_title(Chart& chart, const std::string& title);

struct SvgOptions {
  double width = 720;       // of the whole picture, pixels; the height follows from the content
  bool title = true;        // draw the specification's title
  bool standalone = false;  // with a style of its own (light and dark), for a file; otherwise the page's colour is used
};

/// Renders a specification. Understood are: inline data; single views and layers; the marks line, area, point, circle,
/// bar, rect, rule, tick, errorbar and text; the channels x, y, x2, y2, xOffset, yOffset, color, shape, strokeDash,
/// text, detail and tooltip; linear, log and band scales with domain, range, zero and nice; axis and legend titles and
/// formats; stacked bars. Labels are measured, so that none overlaps another or leaves the picture: tick labels thin
/// out or tilt, legends wrap, text marks look for a free place and are left out when there is none (the mark's tooltip,
/// an SVG <title>, still has the text).
/// Throws UserError naming the member for anything else: a chart is never drawn wrong silently.
[[nodiscard]] std::string render_svg(const nlohmann::json& spec, const SvgOptions& options = {});

/// The data of a specification (of all layers) as RFC 4180; columns in order of appearance.
[[nodiscard]] std::string chart_csv(const nlohmann::json& spec);

/// A <figure>: the chart for wide and for narrow screens, its caption, and links that save it as SVG, its data as CSV,
/// the specification as JSON, all without a network.
[[nodiscard]] std::string chart_html(const Chart& chart);

/// The palette of Okabe and Ito (2008), told apart by every kind of colour vision; black first (drawn in the text's
/// colour), yellow last.
[[nodiscard]] const std::vector<std::string>& series_colors();

}  // namespace kvarena::reports
