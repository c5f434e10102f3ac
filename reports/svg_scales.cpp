// Which numbers and categories a chart shows, and how categories look.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "harness/core/error.h"
#include "reports/svg_plot.h"

namespace kvarena::reports {
namespace {

using nlohmann::json;

struct Domain {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;

  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  [[nodiscard]] bool empty() const { return low > high; }
};

// Categories of a channel over all layers: the given order, else order of appearance ("sort": null), else the alphabet,
// numbers by size.
std::vector<std::string> categories_of(const View& view, const std::string& name) {
  std::vector<std::string> found;
  std::vector<std::string> given;
  bool keep_order = false;
  bool numeric = true;
  for (const Layer& layer : view.layers) {
    const Channel* channel = layer.channel(name);
    if (channel == nullptr || channel->def.type == FieldType::quantitative) continue;
    keep_order = keep_order || channel->keep_order;
    if (!channel->order.empty()) given = channel->order;
    if (channel->scale.contains("domain")) {
      given.clear();
      for (const json& value : channel->scale["domain"]) given.push_back(category_text(value));
    }
    for (const json& row : layer.rows) {
      const json value = layer.data(name, row);
      if (value.is_null()) continue;
      numeric = numeric && value.is_number();
      found.push_back(category_text(value));
    }
  }
  std::vector<std::string> unique;
  const auto add = [&](const std::string& category) {
    if (std::find(unique.begin(), unique.end(), category) == unique.end()) unique.push_back(category);
  };
  for (const std::string& category : given) add(category);
  for (const std::string& category : found) add(category);
  if (!keep_order && given.empty()) {
    std::sort(unique.begin(), unique.end(), [&](const std::string& a, const std::string& b) {
      return numeric ? std::stod(a) < std::stod(b) : a < b;
    });
  }
  return unique;
}

bool is_stacked(const Layer& layer, const std::string& value_axis) {
  const std::string offset = value_axis == "y" ? "xOffset" : "yOffset";
  const Channel* channel = layer.channel(value_axis);
  return layer.mark == "bar" && layer.channel("color") != nullptr && layer.channel(offset) == nullptr &&
         layer.channel(value_axis + "2") == nullptr && channel != nullptr && channel->stack &&
         channel->def.type == FieldType::quantitative;
}

void add_stacks(const Layer& layer, const std::string& axis, Domain& domain) {
  const std::string other = axis == "y" ? "x" : "y";
  std::map<std::string, double> tops;
  for (const json& row : layer.rows) {
    if (const auto value = layer.number(axis, row)) {
      domain.add(tops[category_text(layer.data(other, row))] += *value);
    }
  }
  domain.add(0);
}

Domain numbers_of(const View& view, const std::string& axis, bool positive_only) {
  Domain domain;
  for (const Layer& layer : view.layers) {
    if (is_stacked(layer, axis)) {
      add_stacks(layer, axis, domain);
      continue;
    }
    for (const std::string& name : {axis, axis + "2"}) {
      const Channel* channel = layer.channel(name);
      if (channel == nullptr) continue;
      if (channel->datum.is_number()) domain.add(channel->datum.get<double>());
      for (const json& row : layer.rows) {
        const auto value = layer.number(name, row);
        if (value && (!positive_only || *value > 0)) domain.add(*value);
      }
    }
  }
  return domain;
}

// The first layer that says something about the axis decides; `zero` and `domain` may come from any.
PositionScale position_scale(const Plot& plot, const std::string& axis, std::string& title, std::string& format) {
  PositionScale scale;
  bool zero = false, nice = true, decided = false;
  std::optional<Domain> given;
  for (const Layer& layer : plot.view.layers) {
    const Channel* channel = layer.channel(axis);
    if (channel == nullptr) continue;
    if (!decided) {
      title = channel->def.title;
      format = channel->axis.value("format", "");
      if (channel->def.type != FieldType::quantitative) {
        scale.kind = PositionScale::Kind::band;
      } else if (channel->scale.value("type", "linear") == "log") {
        scale.kind = PositionScale::Kind::log;
      }
      zero = channel->scale.value("zero", true);
      nice = channel->scale.value("nice", true);
      decided = true;
    }
    if (layer.mark == "bar" && layer.channel(axis + "2") == nullptr && !channel->scale.contains("zero")) zero = true;
    const auto domain = channel->scale.find("domain");
    if (domain != channel->scale.end() && channel->def.type == FieldType::quantitative) {
      given = Domain{(*domain)[0].get<double>(), (*domain)[1].get<double>()};
    }
  }
  if (scale.kind == PositionScale::Kind::band) {
    scale.categories = categories_of(plot.view, axis);
    return scale;
  }
  const bool log = scale.kind == PositionScale::Kind::log;
  Domain domain = given ? *given : numbers_of(plot.view, axis, log);
  if (domain.empty()) domain = log ? Domain{1, 10} : Domain{0, 1};
  if (zero && !log && !given) domain.add(0);
  if (domain.low == domain.high) {
    const double half = log ? 0 : std::max(std::abs(domain.low) * 0.1, 1e-9);
    domain = log ? Domain{domain.low / 2, domain.low * 2} : Domain{domain.low - half, domain.high + half};
  }
  scale.low = domain.low;
  scale.high = domain.high;
  if (nice && !given) scale.make_nice(5);
  return scale;
}

const std::vector<std::string>& shape_names() {
  static const std::vector<std::string> kShapes = {"circle", "square",        "triangle-up", "diamond",
                                                   "cross",  "triangle-down", "plus"};
  return kShapes;
}

const std::vector<std::string>& dash_names() {
  static const std::vector<std::string> kDashes = {"", "6 3", "2 2", "8 3 2 3", "4 2", "1 3", "10 4"};
  return kDashes;
}

std::string range_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  std::string dashes;
  for (const json& number : value) dashes += fmt::format("{}{}", dashes.empty() ? "" : " ", px(number.get<double>()));
  return dashes;
}

StyleScale style_scale(const View& view, const std::string& name, const std::vector<std::string>& looks) {
  StyleScale scale;
  for (const Layer& layer : view.layers) {
    const Channel* channel = layer.channel(name);
    if (channel == nullptr || channel->def.field.empty() || channel->raw) continue;
    scale.continuous = channel->def.type == FieldType::quantitative;
    if (!scale.present) {
      scale.field = channel->def.field;
      scale.title = channel->legend.contains("title") && channel->legend["title"].is_string()
                        ? channel->legend["title"].get<std::string>()
                    : channel->legend.contains("title") ? ""
                                                        : channel->def.title;
      scale.format = channel->legend.value("format", "");
    }
    scale.present = true;
    scale.hide_legend = scale.hide_legend || channel->hide_legend;
    const auto range = channel->scale.find("range");
    if (range != channel->scale.end()) {
      scale.range.clear();
      for (const json& value : *range) scale.range.push_back(range_text(value));
    }
  }
  if (!scale.present) return scale;
  if (scale.range.empty()) scale.range = looks;
  if (!scale.continuous) {
    scale.domain = categories_of(view, name);
    return scale;
  }
  Domain domain = numbers_of(view, name, false);
  for (const Layer& layer : view.layers) {
    const Channel* channel = layer.channel(name);
    if (channel != nullptr && channel->scale.contains("domain")) {
      domain = {channel->scale["domain"][0].get<double>(), channel->scale["domain"][1].get<double>()};
    }
  }
  if (domain.empty()) domain = {0, 1};
  scale.low = domain.low;
  scale.high = domain.low == domain.high ? domain.low + 1 : domain.high;
  return scale;
}

}  // namespace

const std::string& StyleScale::look(const std::string& category) const {
  const auto found = std::find(domain.begin(), domain.end(), category);
  const auto at = found == domain.end() ? 0 : static_cast<size_t>(found - domain.begin());
  return range[at % range.size()];
}

void build_scales(Plot& plot) {
  for (const Layer& layer : plot.view.layers) {
    plot.x_used = plot.x_used || layer.channel("x") != nullptr;
    plot.y_used = plot.y_used || layer.channel("y") != nullptr;
  }
  plot.x = position_scale(plot, "x", plot.x_title, plot.x_format);
  plot.y = position_scale(plot, "y", plot.y_title, plot.y_format);
  plot.x_offsets = categories_of(plot.view, "xOffset");
  plot.y_offsets = categories_of(plot.view, "yOffset");
  plot.color = style_scale(plot.view, "color", series_colors());
  plot.shape = style_scale(plot.view, "shape", shape_names());
  plot.dash = style_scale(plot.view, "strokeDash", dash_names());
}

}  // namespace kvarena::reports
