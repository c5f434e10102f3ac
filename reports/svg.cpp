// From a specification to a picture: read, scale, lay out, draw.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "harness/core/error.h"
#include "reports/chart.h"
#include "reports/escape.h"
#include "reports/svg_plot.h"

namespace kvarena::reports {
namespace {

constexpr const char* kFonts = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif";

// A saved picture follows the viewer's choice of light or dark; a page has its own style.
constexpr const char* kStandaloneStyle =
    "<style>svg{color:#1c2128;--paper:#fff;background:#fff}"
    "@media(prefers-color-scheme:dark){svg{color:#e4e7eb;--paper:#15181d;background:#15181d}}</style>\n";

int hex_pair(const std::string& color, size_t at) { return std::stoi(color.substr(at, 2), nullptr, 16); }

}  // namespace

const std::vector<std::string>& series_colors() {
  static const std::vector<std::string> kColors = {"#000000", "#0072B2", "#D55E00", "#009E73",
                                                   "#CC79A7", "#E69F00", "#56B4E9", "#F0E442"};
  return kColors;
}

std::string px(double value) {
  std::string text = fmt::format("{:.2f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string paint(const std::string& color) {
  const bool hex = color.size() > 1 && color[0] == '#' && (color.size() == 4 || color.size() == 7) &&
                   std::all_of(color.begin() + 1, color.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
  const bool word =
      !color.empty() && std::all_of(color.begin(), color.end(), [](unsigned char c) { return std::isalpha(c) != 0; });
  if (!hex && !word) fail({.place = "chart specification: colour", .found = color, .expected = "#rrggbb or a name"});
  return color == "#000000" || color == "#000" || color == "black" ? "currentColor" : color;
}

std::string blend(const std::vector<std::string>& colors, double share) {
  if (colors.size() < 2 ||
      std::any_of(colors.begin(), colors.end(), [](const std::string& c) { return c.size() != 7; })) {
    fail({.place = "chart specification: color.scale.range",
          .found = fmt::format("{}", fmt::join(colors, " ")),
          .expected = "two or more colours of the form #rrggbb for a colour over numbers"});
  }
  const double along =
      std::clamp(std::isfinite(share) ? share : 0.0, 0.0, 1.0) * static_cast<double>(colors.size() - 1);
  const size_t at = std::min(static_cast<size_t>(along), colors.size() - 2);
  std::array<int, 3> mixed{};
  for (size_t part = 0; part < 3; ++part) {
    const int a = hex_pair(colors[at], 1 + 2 * part), b = hex_pair(colors[at + 1], 1 + 2 * part);
    mixed[part] = static_cast<int>(std::lround(a + (b - a) * (along - static_cast<double>(at))));
  }
  return fmt::format("#{:02x}{:02x}{:02x}", mixed[0], mixed[1], mixed[2]);
}

std::string shape_path(const std::string& shape, double x, double y, double size) {
  const double r = std::sqrt(size / 3.14159265358979);
  if (shape == "square") {
    const double h = r * 0.886;
    return fmt::format("M{} {}h{}v{}h{}Z", px(x - h), px(y - h), px(2 * h), px(2 * h), px(-2 * h));
  }
  if (shape == "diamond") {
    const double h = r * 1.3;
    return fmt::format("M{} {}L{} {}L{} {}L{} {}Z", px(x), px(y - h), px(x + h), px(y), px(x), px(y + h), px(x - h),
                       px(y));
  }
  if (shape == "triangle-up" || shape == "triangle-down") {
    const double sign = shape == "triangle-up" ? 1 : -1, h = r * 1.25;
    return fmt::format("M{} {}L{} {}L{} {}Z", px(x), px(y - sign * h), px(x + h), px(y + sign * h * 0.8), px(x - h),
                       px(y + sign * h * 0.8));
  }
  if (shape == "cross" || shape == "plus") {
    const double a = r * 1.25, b = r * 0.42;
    return fmt::format("M{} {}h{}v{}h{}v{}h{}v{}h{}v{}h{}v{}h{}Z", px(x - b), px(y - a), px(2 * b), px(a - b),
                       px(a - b), px(2 * b), px(b - a), px(a - b), px(-2 * b), px(b - a), px(b - a), px(-2 * b),
                       px(a - b));
  }
  if (shape != "circle") {
    fail({.place = "chart specification: shape",
          .found = shape,
          .expected = "circle, square, diamond, triangle-up, triangle-down, cross or plus"});
  }
  return fmt::format("M{} {}a{} {} 0 1 0 {} 0a{} {} 0 1 0 {} 0Z", px(x - r), px(y), px(r), px(r), px(2 * r), px(r),
                     px(r), px(-2 * r));
}

std::string svg_text(double x, double y, const std::string& text, double size, const std::string& anchor,
                     const std::string& attributes) {
  const std::string fill = attributes.find(" fill=") == std::string::npos ? " fill=\"currentColor\"" : "";
  // A third of the size below the middle is the base line of all common fonts, near enough.
  return fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\" text-anchor=\"{}\"{}{}>{}</text>\n", px(x),
                     px(y + size * 0.35), px(size), anchor, fill, attributes, escape_html(text));
}

std::string render_svg(const nlohmann::json& spec, const SvgOptions& options) {
  Plot plot;
  plot.view = read_view(spec);
  plot.options = options;
  build_scales(plot);
  const double height = draw_head_and_layout(plot);
  draw_axes(plot);
  draw_marks(plot);
  const std::string label = escape_html(plot.view.title.empty() ? plot.view.description : plot.view.title);
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {} {}\" "
      "width=\"{}\" height=\"{}\" font-family=\"{}\">\n{}{}</svg>\n",
      label, px(options.width), px(height), px(options.width), px(height), kFonts,
      options.standalone ? kStandaloneStyle : "", plot.svg);
}

}  // namespace kvarena::reports
