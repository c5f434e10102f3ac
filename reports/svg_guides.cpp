// Title, legends and axes: everything around the marks, laid out so that no text meets another.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/escape.h"
#include "reports/number.h"
#include "reports/svg_plot.h"
#include "reports/text_width.h"

namespace kvarena::reports {
namespace {

constexpr double kMargin = 8;
constexpr double kTickGap = 7;  // between the plot and a tick's label
constexpr double kMuted = 0.75;

double line_height(double size) { return size * kLineHeight; }

// --- legends

struct LegendEntry {
  std::string label;
  std::string color = "currentColor";
  std::string shape;
  std::string dash;
};

bool has_mark(const View& view, const std::string& mark) {
  return std::any_of(view.layers.begin(), view.layers.end(), [&](const Layer& layer) { return layer.mark == mark; });
}

std::vector<LegendEntry> legend_entries(const Plot& plot) {
  std::vector<LegendEntry> entries;
  const StyleScale* scales[] = {&plot.color, &plot.shape, &plot.dash};
  std::string seen_field;
  for (const StyleScale* scale : scales) {
    if (!scale->present || scale->continuous || scale->hide_legend || scale->field == seen_field) continue;
    seen_field = scale->field;
    for (const std::string& category : scale->domain) {
      LegendEntry entry{.label = category};
      if (plot.color.present && plot.color.field == scale->field) entry.color = paint(plot.color.look(category));
      if (plot.shape.present && plot.shape.field == scale->field) entry.shape = plot.shape.look(category);
      if (plot.dash.present && plot.dash.field == scale->field) entry.dash = plot.dash.look(category);
      entries.push_back(entry);
    }
  }
  return entries;
}

std::string legend_symbol(const Plot& plot, const LegendEntry& entry, double x, double y) {
  std::string svg;
  const bool line = has_mark(plot.view, "line") && entry.shape.empty();
  const bool block = has_mark(plot.view, "bar") || has_mark(plot.view, "rect");
  if (line) {
    svg += fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{}\" stroke-width=\"2.5\"{}/>", px(x),
                       px(y), px(x + 22), px(y), entry.color,
                       entry.dash.empty() ? "" : fmt::format(" stroke-dasharray=\"{}\"", entry.dash));
  } else if (block) {
    svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"13\" height=\"13\" rx=\"2\" fill=\"{}\"/>", px(x + 5),
                       px(y - 6.5), entry.color);
  } else {
    svg += fmt::format("<path d=\"{}\" fill=\"{}\"/>",
                       shape_path(entry.shape.empty() ? "circle" : entry.shape, x + 11, y, 80), entry.color);
  }
  return svg;
}

// Rows of entries, wrapping at the picture's edge. Returns the y below.
double draw_entries(Plot& plot, double y) {
  const std::vector<LegendEntry> entries = legend_entries(plot);
  if (entries.empty()) return y;
  const double right = plot.options.width - kMargin;
  const double height = 20;
  double x = kMargin;
  y += height / 2;
  for (const LegendEntry& entry : entries) {
    const std::string label = fit_text(clean_text(entry.label), kFontSize, right - kMargin - 30);
    const double width = 28 + text_width(label, kFontSize);
    if (x > kMargin && x + width > right) {
      x = kMargin;
      y += height;
    }
    plot.svg += legend_symbol(plot, entry, x, y) + svg_text(x + 28, y, label, kFontSize, "start");
    x += width + 16;
  }
  return y + height / 2 + 4;
}

double draw_gradient(Plot& plot, double y) {
  if (!plot.color.present || !plot.color.continuous || plot.color.hide_legend) return y;
  constexpr int kSteps = 24;
  const double width = std::min(160.0, plot.options.width / 3);
  const auto label = [&](double value) {
    return plot.color.format.empty() ? format_number(value, {NumberStyle::significant, 3})
                                     : format_d3(value, plot.color.format);
  };
  double x = kMargin;
  const std::string title = fit_text(clean_text(plot.color.title), kFontSize, plot.options.width - width - 120);
  plot.svg += svg_text(x, y + 8, title, kFontSize, "start");
  x += text_width(title, kFontSize) + 12;
  plot.svg += svg_text(x, y + 8, label(plot.color.low), kFontSize, "start");
  x += text_width(label(plot.color.low), kFontSize) + 6;
  for (int step = 0; step < kSteps; ++step) {
    plot.svg +=
        fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"12\" fill=\"{}\"/>", px(x + width * step / kSteps),
                    px(y + 2), px(width / kSteps + 0.5), blend(plot.color.range, (step + 0.5) / kSteps));
  }
  plot.svg += svg_text(x + width + 6, y + 8, label(plot.color.high), kFontSize, "start");
  return y + 24;
}

double draw_title(Plot& plot, double y) {
  if (!plot.options.title || plot.view.title.empty()) return y;
  for (const std::string& line :
       wrap_text(clean_text(plot.view.title), kTitleSize * 1.07, plot.options.width - 2 * kMargin)) {
    plot.svg += svg_text(kMargin, y + line_height(kTitleSize) / 2, line, kTitleSize, "start", " font-weight=\"600\"");
    y += line_height(kTitleSize);
  }
  return y + 6;
}

// --- axes

int about_ticks(double pixels, double room) { return std::max(2, static_cast<int>(pixels / room)); }

std::vector<Tick> y_ticks(const Plot& plot, double height) {
  return plot.y.ticks(plot.y.kind == PositionScale::Kind::band ? 0 : std::min(8, about_ticks(height, 46)),
                      plot.y_format);
}

double widest(const std::vector<Tick>& ticks) {
  double width = 0;
  for (const Tick& tick : ticks) width = std::max(width, text_width(clean_text(tick.label), kFontSize));
  return width;
}

struct XLabels {
  std::vector<Tick> ticks;
  bool tilted = false;
  double height = 0;
};

constexpr double kTilt = 35 * 3.14159265358979 / 180;
constexpr double kLongestTilted = 130;  // pixels; longer labels are cut

// Ticks of the x axis that fit side by side: fewer numbers, tilted categories.
XLabels x_labels(const Plot& plot, double width) {
  if (plot.x.kind == PositionScale::Kind::band) {
    XLabels labels{.ticks = plot.x.ticks(0, "")};
    const double step = width / static_cast<double>(std::max<size_t>(1, labels.ticks.size()));
    labels.tilted = widest(labels.ticks) + 6 > step;
    labels.height = labels.tilted
                        ? std::min(kLongestTilted, widest(labels.ticks)) * std::sin(kTilt) + line_height(kFontSize)
                        : line_height(kFontSize);
    return labels;
  }
  PositionScale scale = plot.x;
  scale.start = 0;
  scale.end = width;
  XLabels labels;
  for (int about = std::min(10, about_ticks(width, 56)); about >= 1; --about) {
    labels.ticks = scale.ticks(about, plot.x_format);
    double last = -1e9;
    bool fits = true;
    for (const Tick& tick : labels.ticks) {
      const double half = text_width(tick.label, kFontSize) / 2;
      fits = fits && scale.at(tick.value) - half >= last + 8;
      last = scale.at(tick.value) + half;
    }
    if (fits) break;
  }
  labels.height = line_height(kFontSize);
  return labels;
}

void draw_x_ticks(Plot& plot) {
  const XLabels labels = x_labels(plot, plot.area.width());
  const bool band = plot.x.kind == PositionScale::Kind::band;
  for (const Tick& tick : labels.ticks) {
    const double x = band ? plot.x.middle(tick.label) : plot.x.at(tick.value);
    if (!band) {
      plot.svg += fmt::format(
          "<line x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2}\" stroke=\"currentColor\" "
          "stroke-opacity=\".1\"/>",
          px(x), px(plot.area.top), px(plot.area.bottom));
    }
    const double y = plot.area.bottom + kTickGap + kFontSize / 2;
    const std::string text = clean_text(tick.label);
    if (labels.tilted) {
      const std::string turn = fmt::format(" transform=\"rotate(-35 {} {})\"", px(x), px(y));
      plot.svg += svg_text(x, y, fit_text(text, kFontSize, kLongestTilted), kFontSize, "end", turn);
    } else {
      plot.svg += svg_text(x, y, text, kFontSize, "middle");
    }
  }
}

void draw_y_ticks(Plot& plot) {
  const bool band = plot.y.kind == PositionScale::Kind::band;
  for (const Tick& tick : y_ticks(plot, plot.area.height())) {
    const double y = band ? plot.y.middle(tick.label) : plot.y.at(tick.value);
    if (!band) {
      plot.svg += fmt::format(
          "<line x1=\"{0}\" y1=\"{1}\" x2=\"{2}\" y2=\"{1}\" stroke=\"currentColor\" "
          "stroke-opacity=\".14\"/>",
          px(plot.area.left), px(y), px(plot.area.right));
    }
    const std::string text = fit_text(clean_text(tick.label), kFontSize, plot.area.left - kTickGap - kMargin + 1);
    plot.svg += svg_text(plot.area.left - kTickGap, y, text, kFontSize, "end");
  }
}

}  // namespace

double draw_head_and_layout(Plot& plot) {
  double y = draw_title(plot, kMargin);
  y = draw_entries(plot, y);
  y = draw_gradient(plot, y);
  const double width = plot.options.width;
  const bool named_y = plot.y_used && !plot.y_title.empty();
  const auto y_title_lines =
      named_y ? wrap_text(clean_text(plot.y_title), kFontSize, width - 2 * kMargin) : std::vector<std::string>();
  for (const std::string& line : y_title_lines) {
    plot.svg += svg_text(kMargin, y + line_height(kFontSize) / 2, line, kFontSize, "start",
                         fmt::format(" opacity=\"{}\"", kMuted));
    y += line_height(kFontSize);
  }
  const double y_labels = plot.y_used ? widest(y_ticks(plot, plot.view.height)) + kTickGap : 0;
  plot.area.left = kMargin + std::min(y_labels, width * 0.4);
  plot.area.top = y + 10;
  // Half of the last label of a number axis may stand out on the right.
  plot.area.right = width - kMargin - (plot.x.kind == PositionScale::Kind::band ? 2 : 22);
  const size_t rows = plot.y.kind == PositionScale::Kind::band ? plot.y.categories.size() : 0;
  if (rows > 0 && !plot.view.height_given) {
    plot.view.height =
        26.0 * static_cast<double>(rows) * std::max(1.0, static_cast<double>(plot.y_offsets.size()) * 0.55) + 8;
  }
  plot.area.bottom = plot.area.top + plot.view.height;
  double bottom = plot.area.bottom + kTickGap;
  if (plot.x_used) bottom += x_labels(plot, plot.area.width()).height;
  for (const std::string& line : wrap_text(clean_text(plot.x_used ? plot.x_title : ""), kFontSize, plot.area.width())) {
    plot.svg += svg_text((plot.area.left + plot.area.right) / 2, bottom + 4 + line_height(kFontSize) / 2, line,
                         kFontSize, "middle", fmt::format(" opacity=\"{}\"", kMuted));
    bottom += line_height(kFontSize);
  }
  plot.x.start = plot.area.left;
  plot.x.end = plot.area.right;
  const bool down = plot.y.kind == PositionScale::Kind::band;
  plot.y.start = down ? plot.area.top : plot.area.bottom;
  plot.y.end = down ? plot.area.bottom : plot.area.top;
  return bottom + kMargin + 4;
}

void draw_axes(Plot& plot) {
  if (plot.x_used) draw_x_ticks(plot);
  if (plot.y_used) draw_y_ticks(plot);
  plot.svg += fmt::format(
      "<line x1=\"{0}\" y1=\"{2}\" x2=\"{1}\" y2=\"{2}\" stroke=\"currentColor\" "
      "stroke-opacity=\".5\"/>\n",
      px(plot.area.left), px(plot.area.right), px(plot.area.bottom));
}

}  // namespace kvarena::reports
