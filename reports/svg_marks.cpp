// The marks: lines, areas, points, bars, cells of heat maps, rules and error bars.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "reports/escape.h"
#include "reports/number.h"
#include "reports/svg_plot.h"
#include "reports/text_width.h"

namespace kvarena::reports {
using nlohmann::json;

namespace {

std::string group_key(const Plot& plot, const Layer& layer, const json& row) {
  std::string key;
  for (const char* name : {"color", "strokeDash", "shape", "detail"}) {
    if (layer.channel(name) != nullptr && !(plot.color.continuous && std::string(name) == "color")) {
      key += category_text(layer.data(name, row)) + '\x1f';
    }
  }
  return key;
}

}  // namespace

std::string color_of(const Plot& plot, const Layer& layer, const json& row) {
  const Channel* channel = layer.channel("color");
  if (channel != nullptr) {
    if (channel->value.is_string()) return paint(channel->value.get<std::string>());
    const json value = layer.data("color", row);
    if (channel->raw && value.is_string()) return paint(value.get<std::string>());
    if (plot.color.continuous && value.is_number()) {
      return blend(plot.color.range, (value.get<double>() - plot.color.low) / (plot.color.high - plot.color.low));
    }
    if (plot.color.present && !plot.color.continuous) return paint(plot.color.look(category_text(value)));
  }
  return layer.options.contains("color") ? paint(layer.options["color"].get<std::string>()) : paint(series_colors()[1]);
}

std::string tooltip_value(const json& value) {
  if (value.is_number()) return format_number(value.get<double>(), {NumberStyle::significant, 4});
  return category_text(value);
}

std::optional<double> place(const Plot& plot, const Layer& layer, const json& row, const std::string& axis) {
  const bool is_x = axis[0] == 'x';
  const PositionScale& scale = is_x ? plot.x : plot.y;
  if (scale.kind != PositionScale::Kind::band) {
    const auto number = layer.number(axis, row);
    if (!number || (scale.kind == PositionScale::Kind::log && *number <= 0)) return std::nullopt;
    return scale.at(*number);
  }
  const std::string category = category_text(layer.data(axis, row));
  if (!scale.has(category)) return std::nullopt;
  const std::vector<std::string>& offsets = is_x ? plot.x_offsets : plot.y_offsets;
  const std::string offset_channel = is_x ? "xOffset" : "yOffset";
  if (offsets.empty() || layer.channel(offset_channel) == nullptr) return scale.middle(category);
  const auto found = std::find(offsets.begin(), offsets.end(), category_text(layer.data(offset_channel, row)));
  const double share = (static_cast<double>(found - offsets.begin()) + 0.5) / static_cast<double>(offsets.size());
  return scale.middle(category) + (share - 0.5) * scale.band();
}

std::vector<std::vector<const json*>> groups_of(const Plot& plot, const Layer& layer) {
  std::vector<std::string> keys;
  std::map<std::string, std::vector<const json*>> groups;
  for (const json& row : layer.rows) {
    const std::string key = group_key(plot, layer, row);
    if (!groups.contains(key)) keys.push_back(key);
    groups[key].push_back(&row);
  }
  std::vector<std::vector<const json*>> ordered;
  for (const std::string& key : keys) {
    std::vector<const json*>& rows = groups[key];
    std::stable_sort(rows.begin(), rows.end(), [&](const json* a, const json* b) {
      return place(plot, layer, *a, "x").value_or(0) < place(plot, layer, *b, "x").value_or(0);
    });
    ordered.push_back(rows);
  }
  return ordered;
}

namespace {

// --- what a row looks like

std::string dash_of(const Plot& plot, const Layer& layer, const json& row) {
  std::string dash;
  if (layer.channel("strokeDash") != nullptr && plot.dash.present) {
    dash = plot.dash.look(category_text(layer.data("strokeDash", row)));
  } else if (layer.options.contains("strokeDash")) {
    for (const json& part : layer.options["strokeDash"])
      dash += fmt::format("{}{}", dash.empty() ? "" : " ", px(part.get<double>()));
  }
  return dash.empty() ? dash : fmt::format(" stroke-dasharray=\"{}\"", dash);
}

std::string opacity_of(const Layer& layer, double usual) {
  const double opacity = layer.options.value("opacity", usual);
  return opacity >= 1 ? std::string() : fmt::format(" opacity=\"{}\"", px(opacity));
}

std::string tooltip(const Layer& layer, const json& row) {
  std::vector<std::string> lines;
  const auto add = [&](const FieldDef& def) {
    const auto found = row.find(def.field);
    if (def.field.empty() || found == row.end() || found->is_null()) return;
    const std::string line = (def.title.empty() ? def.field : def.title) + ": " + tooltip_value(*found);
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  };
  const Channel* given = layer.channel("tooltip");
  if (given != nullptr && !given->list.empty()) {
    for (const FieldDef& def : given->list) add(def);
  } else {
    for (const auto& [name, channel] : layer.encoding) add(channel.def);
  }
  return lines.empty() ? std::string()
                       : fmt::format("<title>{}</title>", escape_html(fmt::format("{}", fmt::join(lines, "\n"))));
}

// --- where a row is

struct Span {
  double from = 0, to = 0;
};

double thickness(const PositionScale& scale, const std::vector<std::string>& offsets) {
  return scale.band() / static_cast<double>(std::max<size_t>(1, offsets.size())) * (offsets.empty() ? 1 : 0.92);
}

// --- one function a mark

std::string line_path(const Plot& plot, const Layer& layer, const std::vector<const json*>& rows) {
  const std::string interpolate = layer.options.value("interpolate", "linear");
  std::string path;
  std::optional<Span> last;  // from = x, to = y of the point before
  for (const json* row : rows) {
    const auto x = place(plot, layer, *row, "x");
    const auto y = place(plot, layer, *row, "y");
    if (!x || !y) {
      last.reset();
      continue;
    }
    if (last && interpolate == "step-after")
      path += fmt::format("H{}V{}", px(*x), px(*y));
    else if (last && interpolate == "step-before")
      path += fmt::format("V{}H{}", px(*y), px(*x));
    else
      path += fmt::format("{}{} {}", last ? "L" : "M", px(*x), px(*y));
    last = Span{*x, *y};
  }
  return path;
}

void draw_point(Plot& plot, const Layer& layer, const json& row, double size, const std::string& shape) {
  const auto x = place(plot, layer, row, "x");
  const auto y = place(plot, layer, row, "y");
  if (!x || !y) return;
  plot.svg += fmt::format("<path d=\"{}\" fill=\"{}\" stroke=\"var(--paper,#fff)\" stroke-width=\"1\"{}>{}</path>\n",
                          shape_path(shape, *x, *y, size), color_of(plot, layer, row), opacity_of(layer, 1),
                          tooltip(layer, row));
}

void draw_line(Plot& plot, const Layer& layer) {
  constexpr size_t kMostTargets = 3000;  // invisible points that carry tooltips
  for (const std::vector<const json*>& rows : groups_of(plot, layer)) {
    plot.svg += fmt::format(
        "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\"{}{}/>\n",
        line_path(plot, layer, rows), color_of(plot, layer, *rows.front()), px(layer.options.value("strokeWidth", 2.0)),
        dash_of(plot, layer, *rows.front()), opacity_of(layer, 1));
  }
  const auto point = layer.options.find("point");
  if (point != layer.options.end() && *point != false) {
    for (const json& row : layer.rows) draw_point(plot, layer, row, 50, "circle");
  } else if (layer.rows.size() <= kMostTargets && layer.options.value("tooltip", true)) {
    for (const json& row : layer.rows) {
      const auto x = place(plot, layer, row, "x");
      const auto y = place(plot, layer, row, "y");
      if (!x || !y) continue;
      plot.svg += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"5\" fill-opacity=\"0\">{}</circle>", px(*x), px(*y),
                              tooltip(layer, row));
    }
    plot.svg += '\n';
  }
}

void draw_area(Plot& plot, const Layer& layer) {
  for (const std::vector<const json*>& rows : groups_of(plot, layer)) {
    std::string upper, lower;
    for (const json* row : rows) {
      const auto x = place(plot, layer, *row, "x");
      const auto y = place(plot, layer, *row, "y");
      // Without y2 an area stands on zero; a bound that a log scale cannot show lies on the axis.
      auto y2 = layer.channel("y2") != nullptr ? place(plot, layer, *row, "y2") : plot.y.at(std::max(0.0, plot.y.low));
      if (!y2) y2 = plot.area.bottom;
      if (!x || !y) continue;
      upper += fmt::format("{}{} {}", upper.empty() ? "M" : "L", px(*x), px(*y));
      lower = fmt::format("L{} {}", px(*x), px(*y2)) + lower;
    }
    if (upper.empty()) continue;
    plot.svg += fmt::format("<path d=\"{}{}Z\" fill=\"{}\"{}/>\n", upper, lower, color_of(plot, layer, *rows.front()),
                            opacity_of(layer, 0.7));
  }
}

void draw_points(Plot& plot, const Layer& layer) {
  const double size = layer.options.value("size", 60.0);
  for (const json& row : layer.rows) {
    const bool shaped = layer.channel("shape") != nullptr && plot.shape.present;
    const std::string shape = shaped ? plot.shape.look(category_text(layer.data("shape", row)))
                                     : layer.options.value("shape", std::string("circle"));
    draw_point(plot, layer, row, size, shape);
  }
}

void draw_box(Plot& plot, const Layer& layer, const json& row, const Box& box, double radius) {
  plot.svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{}\" fill=\"{}\"{}>{}</rect>\n",
                          px(std::min(box.left, box.right)), px(std::min(box.top, box.bottom)),
                          px(std::abs(box.width())), px(std::abs(box.height())), px(radius), color_of(plot, layer, row),
                          opacity_of(layer, 1), tooltip(layer, row));
}

void draw_bars(Plot& plot, const Layer& layer) {
  const bool upright = plot.y.kind != PositionScale::Kind::band;  // values along y
  const std::string values = upright ? "y" : "x", bands = upright ? "x" : "y";
  const PositionScale& scale = upright ? plot.y : plot.x;
  const double thick = upright
                           ? thickness(plot.x, layer.channel("xOffset") ? plot.x_offsets : std::vector<std::string>())
                           : thickness(plot.y, layer.channel("yOffset") ? plot.y_offsets : std::vector<std::string>());
  const Channel* channel = layer.channel(values);
  const bool stacked = layer.channel("color") != nullptr && layer.channel(bands + "Offset") == nullptr &&
                       layer.channel(values + "2") == nullptr && channel != nullptr && channel->stack;
  const double foot = scale.kind == PositionScale::Kind::log ? scale.low : std::clamp(0.0, scale.low, scale.high);
  std::map<std::string, double> tops;
  for (const json& row : layer.rows) {
    const auto middle = place(plot, layer, row, bands);
    const auto value = layer.number(values, row);
    if (!middle || !value) continue;
    double from = layer.number(values + "2", row).value_or(foot), to = *value;
    if (stacked) {
      double& top = tops[category_text(layer.data(bands, row))];
      from = top;
      to = top += *value;
    }
    const double a = scale.at(from), b = scale.at(to);
    draw_box(plot, layer, row,
             upright ? Box{*middle - thick / 2, b, *middle + thick / 2, a}
                     : Box{a, *middle - thick / 2, b, *middle + thick / 2},
             1.5);
  }
}

void draw_rects(Plot& plot, const Layer& layer) {
  for (const json& row : layer.rows) {
    const auto x = place(plot, layer, row, "x");
    const auto y = place(plot, layer, row, "y");
    if (!x || !y || layer.data("color", row).is_null()) continue;
    const double w = plot.x.band() / 2, h = plot.y.band() / 2;
    draw_box(plot, layer, row, {*x - w, *y - h, *x + w, *y + h}, 2);
  }
}

// A rule spans the plot in a direction that it says nothing about.
void draw_rules(Plot& plot, const Layer& layer) {
  const bool bars = layer.mark == "errorbar";
  json one = json::array({json::object()});
  for (const json& row : layer.rows.empty() ? one : layer.rows) {
    const auto x = place(plot, layer, row, "x"), y = place(plot, layer, row, "y");
    const auto x2 = layer.channel("x2") ? place(plot, layer, row, "x2") : x;
    const auto y2 = layer.channel("y2") ? place(plot, layer, row, "y2") : y;
    if ((layer.channel("x") && (!x || !x2)) || (layer.channel("y") && (!y || !y2))) continue;
    const Box line{x.value_or(plot.area.left), y.value_or(plot.area.top), x2.value_or(plot.area.right),
                   y2.value_or(plot.area.bottom)};
    std::string path = fmt::format("M{} {}L{} {}", px(line.left), px(line.top), px(line.right), px(line.bottom));
    if (bars && layer.channel("y2")) {
      path +=
          fmt::format("M{0} {2}H{1}M{0} {3}H{1}", px(line.left - 4), px(line.left + 4), px(line.top), px(line.bottom));
    } else if (bars && layer.channel("x2")) {
      path +=
          fmt::format("M{0} {2}V{3}M{1} {2}V{3}", px(line.left), px(line.right), px(line.top - 4), px(line.top + 4));
    }
    const std::string color =
        layer.channel("color") || layer.options.contains("color") ? color_of(plot, layer, row) : "currentColor";
    plot.svg += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"{}{}>{}</path>\n", path,
                            color, px(layer.options.value("strokeWidth", 1.5)), dash_of(plot, layer, row),
                            opacity_of(layer, 1), tooltip(layer, row));
  }
}

void draw_ticks(Plot& plot, const Layer& layer) {
  const bool across_x = plot.x.kind == PositionScale::Kind::band;
  for (const json& row : layer.rows) {
    const auto x = place(plot, layer, row, "x"), y = place(plot, layer, row, "y");
    if (!x || !y) continue;
    const double half = (across_x ? thickness(plot.x, plot.x_offsets) : thickness(plot.y, plot.y_offsets)) / 2;
    draw_box(plot, layer, row,
             across_x ? Box{*x - half, *y - 1, *x + half, *y + 1} : Box{*x - 1, *y - half, *x + 1, *y + half}, 0);
  }
}

}  // namespace

void draw_marks(Plot& plot) {
  for (const Layer& layer : plot.view.layers) {
    if (layer.mark == "line")
      draw_line(plot, layer);
    else if (layer.mark == "area")
      draw_area(plot, layer);
    else if (layer.mark == "point" || layer.mark == "circle")
      draw_points(plot, layer);
    else if (layer.mark == "bar")
      draw_bars(plot, layer);
    else if (layer.mark == "rect")
      draw_rects(plot, layer);
    else if (layer.mark == "rule" || layer.mark == "errorbar")
      draw_rules(plot, layer);
    else if (layer.mark == "tick")
      draw_ticks(plot, layer);
    else if (layer.mark == "text")
      draw_texts(plot, layer);
  }
}

}  // namespace kvarena::reports
