// Text marks: where a label stands so that it meets no other label, no point and no line.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "reports/escape.h"
#include "reports/svg_plot.h"
#include "reports/text_width.h"

namespace kvarena::reports {
namespace {

using nlohmann::json;

/// Places that a label must not stand on.
struct Obstacles {
  std::vector<Box> solid;  // points and labels: never
  std::vector<Box> lines;  // only where there is no other place
};

bool meets(const std::vector<Box>& boxes, const Box& box) {
  return std::ranges::any_of(boxes, [&](const Box& other) { return other.overlaps(box); });
}

/// Adds boxes along a straight line.
void add_segment(std::vector<Box>& boxes, double x1, double y1, double x2, double y2) {
  constexpr double kHalf = 2, kStep = 6;  // pixels
  const int steps = std::max(1, static_cast<int>(std::max(std::abs(x2 - x1), std::abs(y2 - y1)) / kStep));
  for (int i = 0; i < steps; ++i) {
    const double from = static_cast<double>(i) / steps, to = static_cast<double>(i + 1) / steps;
    const double ax = x1 + from * (x2 - x1), bx = x1 + to * (x2 - x1);
    const double ay = y1 + from * (y2 - y1), by = y1 + to * (y2 - y1);
    boxes.push_back(
        {std::min(ax, bx) - kHalf, std::min(ay, by) - kHalf, std::max(ax, bx) + kHalf, std::max(ay, by) + kHalf});
  }
}

void add_line(const Plot& plot, const Layer& layer, std::vector<Box>& boxes) {
  const bool steps = layer.options.value("interpolate", "linear") == "step-after";
  for (const std::vector<const json*>& rows : groups_of(plot, layer)) {
    std::optional<double> last_x, last_y;
    for (const json* row : rows) {
      const auto x = place(plot, layer, *row, "x"), y = place(plot, layer, *row, "y");
      if (x && y && last_x && last_y) {
        add_segment(boxes, *last_x, *last_y, *x, steps ? *last_y : *y);
        if (steps) add_segment(boxes, *x, *last_y, *x, *y);
      }
      last_x = x;
      last_y = y;
    }
  }
}

Obstacles obstacles_of(const Plot& plot) {
  Obstacles obstacles;
  for (const Layer& layer : plot.view.layers) {
    if (layer.mark == "line") add_line(plot, layer, obstacles.lines);
    for (const json& row : layer.rows) {
      const auto x = place(plot, layer, row, "x"), y = place(plot, layer, row, "y");
      if (!x || !y) continue;
      if (layer.mark == "point" || layer.mark == "circle") obstacles.solid.push_back({*x - 6, *y - 6, *x + 6, *y + 6});
      if (layer.mark != "errorbar" || layer.channel("y2") == nullptr) continue;
      if (const auto y2 = place(plot, layer, row, "y2")) add_segment(obstacles.lines, *x, *y, *x, *y2);
    }
  }
  return obstacles;
}

/// A place of a label: its box, and how far it is from its point.
struct Spot {
  Box box;
  double distance = 0;
};

/// Boxes around a point, the nearest first: beside it, above and below, then between.
std::vector<Spot> spots_around(double x, double y, double width, double half) {
  std::vector<Spot> spots;
  for (const double r : {9.0, 14.0, 20.0, 28.0, 38.0, 50.0, 64.0, 80.0, 98.0}) {
    for (const double sign : {1.0, -1.0}) {
      const double left = sign > 0 ? x + r : x - r - width;
      spots.push_back({{left, y - half, left + width, y + half}, r});
    }
    for (const double share : {0.5, 0.0, 1.0, 0.25, 0.75}) {
      for (const double sign : {-1.0, 1.0}) {
        const double middle = y + sign * (r + half * 0.6), left = x - share * width + (0.5 - share) * r;
        spots.push_back({{left, middle - half, left + width, middle + half}, r});
      }
    }
  }
  return spots;
}

/// Beyond this a thin line leads from the point to its label.
constexpr double kNear = 16;

Box leader_of(double x, double y, const Box& box) {
  return {x, y, std::clamp(x, box.left, box.right), std::clamp(y, box.top, box.bottom)};
}

std::vector<Box> boxes_of_leader(const Box& leader) {
  std::vector<Box> boxes;
  const double dx = leader.right - leader.left, dy = leader.bottom - leader.top;
  const double length = std::max(1.0, std::hypot(dx, dy));
  add_segment(boxes, leader.left + 8 * dx / length, leader.top + 8 * dy / length, leader.right, leader.bottom);
  return boxes;
}

std::optional<Spot> free_spot(const std::vector<Spot>& spots, const Obstacles& obstacles, const Box& paper, double x,
                              double y, bool over_lines) {
  for (const Spot& spot : spots) {
    if (!paper.holds(spot.box) || meets(obstacles.solid, spot.box)) continue;
    if (!over_lines && meets(obstacles.lines, spot.box)) continue;
    if (spot.distance > kNear) {
      const std::vector<Box> leader = boxes_of_leader(leader_of(x, y, spot.box));
      if (std::ranges::any_of(leader, [&](const Box& piece) { return meets(obstacles.solid, piece); })) continue;
    }
    return spot;
  }
  return std::nullopt;
}

/// A text beside a point, with the place that was found for it.
struct Label {
  double x = 0, y = 0;
  std::string text;
  std::optional<Spot> spot;
};

/// Finds places one after the other. Returns the labels that found none.
std::vector<size_t> place_in_order(std::vector<Label>& labels, const std::vector<size_t>& order, double size,
                                   const Box& paper, Obstacles obstacles) {
  std::vector<size_t> left_out;
  for (const size_t at : order) {
    Label& label = labels[at];
    const std::vector<Spot> spots = spots_around(label.x, label.y, text_width(label.text, size), size * 0.6);
    label.spot = free_spot(spots, obstacles, paper, label.x, label.y, /*over_lines=*/false);
    if (!label.spot) label.spot = free_spot(spots, obstacles, paper, label.x, label.y, /*over_lines=*/true);
    if (!label.spot) {
      left_out.push_back(at);
      continue;
    }
    obstacles.solid.push_back(label.spot->box);
    if (label.spot->distance <= kNear) continue;
    for (const Box& piece : boxes_of_leader(leader_of(label.x, label.y, label.spot->box)))
      obstacles.lines.push_back(piece);
  }
  return left_out;
}

/// Labels that find no place go first in the next attempt; the attempt that leaves out the fewest counts.
void place_labels(std::vector<Label>& labels, double size, const Box& paper, const Obstacles& obstacles) {
  constexpr int kAttempts = 6;
  std::vector<size_t> order(labels.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<Label> best;
  size_t fewest = labels.size() + 1;
  for (int attempt = 0; attempt < kAttempts && fewest > 0; ++attempt) {
    const std::vector<size_t> left_out = place_in_order(labels, order, size, paper, obstacles);
    if (left_out.size() < fewest) {
      fewest = left_out.size();
      best = labels;
    }
    std::ranges::stable_partition(order, [&](size_t at) { return std::ranges::find(left_out, at) != left_out.end(); });
  }
  labels = std::move(best);
}

void draw_label(Plot& plot, const Label& label, double size) {
  if (!label.spot) return;
  const Box& box = label.spot->box;
  if (label.spot->distance > kNear) {
    const Box leader = leader_of(label.x, label.y, box);
    plot.svg += fmt::format("<path d=\"M{} {}L{} {}\" stroke=\"currentColor\" stroke-opacity=\".45\"/>\n",
                            px(leader.left), px(leader.top), px(leader.right), px(leader.bottom));
  }
  plot.svg += svg_text(box.left, (box.top + box.bottom) / 2, label.text, size, "start",
                       " pointer-events=\"none\" stroke=\"var(--paper,#fff)\" stroke-width=\"3\" "
                       "paint-order=\"stroke\"");
}

// Inside bands (heat maps, bars) a text stands in the middle and must fit its band; elsewhere it looks for a place.
void draw_banded_text(Plot& plot, const Layer& layer, const json& row, const std::string& text, double size) {
  const auto x = place(plot, layer, row, "x"), y = place(plot, layer, row, "y");
  if (!x || !y) return;
  const bool in_cell = plot.x.kind == PositionScale::Kind::band && plot.y.kind == PositionScale::Kind::band;
  if (in_cell && text_width(text, size) > plot.x.band() - 2) return;
  std::string anchor = layer.options.value("align", std::string("center"));
  anchor = anchor == "left" ? "start" : anchor == "right" ? "end" : "middle";
  const double dx = layer.options.value("dx", 0.0), dy = layer.options.value("dy", 0.0);
  const double left = *x + dx - (anchor == "start" ? 0 : anchor == "end" ? 1 : 0.5) * text_width(text, size);
  if (left < 0 || left + text_width(text, size) > plot.options.width) return;
  plot.svg += svg_text(*x + dx, *y + dy, text, size, anchor,
                       fmt::format(" fill=\"{}\" pointer-events=\"none\"", color_of(plot, layer, row)));
}

}  // namespace

void draw_texts(Plot& plot, const Layer& layer) {
  const bool banded = plot.x.kind == PositionScale::Kind::band || plot.y.kind == PositionScale::Kind::band;
  const double size = layer.options.value("fontSize", kFontSize - 1);
  const Channel* channel = layer.channel("text");
  if (channel == nullptr) return;
  std::vector<Label> labels;
  for (const json& row : layer.rows) {
    const json value = channel->value.is_null() ? layer.data("text", row) : channel->value;
    const std::string& format = channel->format;
    const std::string text = clean_text(value.is_number() && !format.empty() ? format_d3(value.get<double>(), format)
                                                                             : tooltip_value(value));
    const auto x = place(plot, layer, row, "x"), y = place(plot, layer, row, "y");
    if (!x || !y) continue;
    if (banded)
      draw_banded_text(plot, layer, row, text, size);
    else
      labels.push_back({.x = *x, .y = *y, .text = text, .spot = {}});
  }
  const Box paper{plot.area.left + 3, plot.area.top - 8, plot.options.width - 2, plot.area.bottom + 2};
  if (!labels.empty()) place_labels(labels, size, paper, obstacles_of(plot));
  for (const Label& label : labels) draw_label(plot, label, size);
}

}  // namespace kvarena::reports
