#include "reports/chart_specs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/json_text.h"
#include "reports/emulated.h"
#include "reports/escape.h"

namespace kvarena::reports {
namespace {

using nlohmann::json;

constexpr const char* kSchema = "https://vega.github.io/schema/vega-lite/v5.json";  // names the language; never fetched
constexpr const char* kShapes[] = {"circle", "square", "triangle-up", "diamond", "triangle-down"};

json axis_channel(const char* field, const AxisSpec& axis) {
  json scale = axis.log ? json{{"type", "log"}} : json{{"zero", axis.zero}};
  json channel = {{"field", field}, {"type", "quantitative"}, {"title", axis.title}, {"scale", scale}};
  if (axis.whole) channel["axis"] = {{"format", "d"}, {"tickMinStep", 1}};
  return channel;
}

// Baselines are black (the text's colour); the others take the palette round and round, with the dashes or shapes of
// the next round, so that eight methods and more stay apart.
struct Looks {
  json domain = json::array(), colors = json::array(), dashes = json::array(), shapes = json::array();
  size_t taken = 0;

  void add(const std::string& label, bool baseline) {
    if (std::find(domain.begin(), domain.end(), json(label)) != domain.end()) return;
    const auto& palette = series_colors();
    const size_t hues = palette.size() - 2;  // without black; yellow is hard to see on white paper
    const size_t round = taken / hues;
    domain.push_back(label);
    colors.push_back(baseline ? palette[0] : palette[1 + taken % hues]);
    dashes.push_back(baseline || round == 0 ? json{1, 0} : round == 1 ? json{6, 3} : json{2, 2});
    shapes.push_back(baseline ? "cross" : kShapes[(taken + round) % std::size(kShapes)]);
    if (!baseline) ++taken;
  }
  [[nodiscard]] json scale(const json& range) const { return {{"domain", domain}, {"range", range}}; }
};

json nominal(const char* field, const json& scale) {
  return {
      {"field", field}, {"type", "nominal"}, {"title", nullptr}, {"scale", scale}, {"legend", {{"title", nullptr}}}};
}

json tip(const char* field, const std::string& title, bool number = true) {
  return {{"field", field}, {"type", number ? "quantitative" : "nominal"}, {"title", title}};
}

/// Whether some of what is drawn came over an emulated link.
template <typename Drawn>
bool any_emulated(const std::vector<Drawn>& drawn) {
  return std::ranges::any_of(drawn, &Drawn::emulated);
}

Chart finish(const std::string& id, const std::string& title, json spec, bool emulated) {
  spec["$schema"] = kSchema;
  spec["title"] = clean_text(title);
  spec["width"] = "container";
  spec["config"] = {{"legend", {{"orient", "top"}, {"columns", 3}}}};
  return {.id = slug(id), .title = title, .caption = {}, .spec = json_text(spec), .emulated = emulated};
}

bool shown(const AxisSpec& axis, double value) { return std::isfinite(value) && (!axis.log || value > 0); }

/// Where an interval begins: one that reaches zero ends below the least value on a logarithmic axis.
double shown_low(const AxisSpec& axis, double low, double least) { return axis.log ? std::max(low, least / 2) : low; }

}  // namespace

Chart line_chart(const std::string& id, const std::string& title, const AxisSpec& x, const AxisSpec& y,
                 const std::vector<LineSeries>& series) {
  Looks looks;
  json values = json::array();
  bool bands = false;
  double least = std::numeric_limits<double>::infinity();
  for (const LineSeries& line : series) {
    for (const LinePoint& point : line.points) {
      if (shown(y, point.y)) least = std::min(least, point.y);
    }
  }
  for (const LineSeries& line : series) {
    const std::string label = clean_text(marked_label(line.label, line.emulated));
    looks.add(label, line.baseline);
    for (const LinePoint& point : line.points) {
      if (!shown(x, point.x) || !shown(y, point.y)) continue;
      json row = {{"x", point.x}, {"y", point.y}, {"series", label}};
      if (point.interval) {
        bands = true;
        row["low"] = shown_low(y, point.interval->low, least);
        row["high"] = point.interval->high;
      }
      values.push_back(row);
    }
  }
  const json color = nominal("series", looks.scale(looks.colors));
  json dash = nominal("series", looks.scale(looks.dashes));
  json layers = json::array();
  if (bands) {
    json low = axis_channel("low", y);
    layers.push_back(
        {{"mark", {{"type", "area"}, {"opacity", 0.16}}},
         {"encoding", {{"x", axis_channel("x", x)}, {"y", low}, {"y2", {{"field", "high"}}}, {"color", color}}}});
    layers[0]["encoding"]["y"]["title"] = y.title;
  }
  layers.push_back({{"mark", {{"type", "line"}, {"strokeWidth", 2}}},
                    {"encoding",
                     {{"x", axis_channel("x", x)},
                      {"y", axis_channel("y", y)},
                      {"color", color},
                      {"strokeDash", dash},
                      {"tooltip",
                       {tip("series", "series", false), tip("x", x.title), tip("y", y.title), tip("low", "low"),
                        tip("high", "high")}}}}});
  if (!x.marks.empty()) {
    json marks = json::array();
    for (const double mark : x.marks) marks.push_back({{"x", mark}});
    layers.push_back({{"mark", {{"type", "rule"}, {"strokeWidth", 1}, {"opacity", 0.4}}},
                      {"data", {{"values", marks}}},
                      {"encoding", {{"x", axis_channel("x", x)}}}});
  }
  return finish(id, title, {{"data", {{"values", values}}}, {"layer", layers}, {"height", 300}}, any_emulated(series));
}

std::vector<LinePoint> cumulative_points(std::vector<double> values) {
  std::ranges::sort(values);
  std::vector<LinePoint> points;
  for (size_t i = 0; i < values.size(); ++i)
    points.push_back({.x = values[i], .y = 100 * static_cast<double>(i + 1) / static_cast<double>(values.size())});
  return points;
}

void mark_pareto_front(std::vector<ScatterPoint>& points, bool lower_is_better) {
  const double sign = lower_is_better ? -1 : 1;
  for (ScatterPoint& point : points) {
    point.on_segment = std::none_of(points.begin(), points.end(), [&](const ScatterPoint& other) {
      const double rise = sign * (other.y - point.y);
      return other.x <= point.x && rise >= 0 && (other.x < point.x || rise > 0);
    });
  }
}

Chart scatter_chart(const std::string& id, const std::string& title, const AxisSpec& x, const AxisSpec& y,
                    const std::vector<ScatterPoint>& points) {
  Looks looks;
  json values = json::array(), front = json::array();
  for (const ScatterPoint& point : points) {
    if (!shown(x, point.x) || !shown(y, point.y)) continue;
    const std::string series = clean_text(point.series);
    looks.add(series, point.baseline);
    json row = {{"series", series},
                {"label", clean_text(marked_label(point.label, point.emulated))},
                {"x", point.x},
                {"y", point.y}};
    if (point.y_interval) {
      row["low"] = point.y_interval->low;
      row["high"] = point.y_interval->high;
    }
    values.push_back(row);
    if (point.on_segment) front.push_back({{"x", point.x}, {"front", point.y}});
  }
  const json at = axis_channel("x", x);
  const json color = nominal("series", looks.scale(looks.colors));
  json y_at = axis_channel("y", y), y_front = axis_channel("front", y), y_low = axis_channel("low", y);
  json layers = json::array();
  layers.push_back({{"mark", {{"type", "errorbar"}, {"ticks", true}}},
                    {"encoding", {{"x", at}, {"y", y_low}, {"y2", {{"field", "high"}}}, {"color", color}}}});
  if (front.size() > 1) {
    layers.push_back({{"data", {{"values", front}}},
                      {"mark",
                       {{"type", "line"},
                        {"interpolate", "step-after"},
                        {"strokeDash", {4, 3}},
                        {"strokeWidth", 1.2},
                        {"color", "#888888"},
                        {"tooltip", false}}},
                      {"encoding", {{"x", at}, {"y", y_front}}}});
  }
  layers.push_back({{"mark", {{"type", "point"}, {"filled", true}, {"size", 90}}},
                    {"encoding",
                     {{"x", at},
                      {"y", y_at},
                      {"color", color},
                      {"shape", nominal("series", looks.scale(looks.shapes))},
                      {"tooltip",
                       {tip("label", "method", false), tip("x", x.title), tip("y", y.title), tip("low", "low"),
                        tip("high", "high")}}}}});
  layers.push_back({{"mark", {{"type", "text"}, {"align", "left"}, {"dx", 9}, {"fontSize", 11}}},
                    {"encoding", {{"x", at}, {"y", y_at}, {"text", {{"field", "label"}, {"type", "nominal"}}}}}});
  return finish(id, title, {{"data", {{"values", values}}}, {"layer", layers}, {"height", 320}}, any_emulated(points));
}

Chart bar_chart(const std::string& id, const std::string& title, const AxisSpec& value,
                const std::vector<BarValue>& bars, BarLayout layout) {
  Looks looks;
  json values = json::array();
  bool parts = false, intervals = false;
  double least = std::numeric_limits<double>::infinity();
  for (const BarValue& bar : bars) {
    if (shown(value, bar.value)) least = std::min(least, bar.value);
  }
  for (const BarValue& bar : bars) {
    if (!shown(value, bar.value)) continue;
    json row = {{"category", clean_text(marked_label(bar.category, bar.emulated))}, {"value", bar.value}};
    if (!bar.part.empty()) {
      parts = true;
      row["part"] = clean_text(bar.part);
      looks.add(clean_text(bar.part), false);
    }
    if (bar.interval) {
      intervals = true;
      row["low"] = shown_low(value, bar.interval->low, least);
      row["high"] = bar.interval->high;
    }
    values.push_back(row);
  }
  const bool grouped = parts && layout == BarLayout::grouped;
  json encoding = {{"x", axis_channel("value", value)},
                   {"y", {{"field", "category"}, {"type", "nominal"}, {"title", nullptr}, {"sort", nullptr}}}};
  encoding["x"]["scale"] = value.log ? json{{"type", "log"}} : json{{"zero", true}};
  if (grouped) encoding["yOffset"] = {{"field", "part"}, {"type", "nominal"}, {"sort", nullptr}};
  json bar_encoding = encoding;
  if (parts) bar_encoding["color"] = nominal("part", looks.scale(looks.colors));
  const json mark = value.log ? json{{"type", "point"}, {"filled", true}, {"size", 60}} : json{{"type", "bar"}};
  json layers = json::array({{{"mark", mark}, {"encoding", bar_encoding}}});
  if (intervals && (!parts || grouped)) {
    json error = encoding;
    error["x"]["field"] = "low";
    error["x2"] = {{"field", "high"}};
    layers.push_back({{"mark", {{"type", "errorbar"}, {"ticks", true}}}, {"encoding", error}});
  }
  json spec = {{"data", {{"values", values}}}, {"layer", layers}};
  return finish(id, title, spec, any_emulated(bars));
}

Chart heat_map(const std::string& id, const std::string& title, const std::string& x_title, const std::string& y_title,
               const std::string& value_title, const std::vector<HeatCell>& cells, int digits) {
  // Ten points of the cividis map (Nunez, Anderton, Renslow 2018).
  const json cividis = {"#00224e", "#123570", "#3b496c", "#575d6d", "#707173",
                        "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"};
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const HeatCell& cell : cells) {
    if (!std::isfinite(cell.value)) continue;
    low = std::min(low, cell.value);
    high = std::max(high, cell.value);
  }
  json values = json::array();
  for (const HeatCell& cell : cells) {
    if (!std::isfinite(cell.value)) continue;
    const bool bright = high > low && (cell.value - low) / (high - low) > 0.5;
    values.push_back({{"x", clean_text(cell.x)},
                      {"y", clean_text(cell.y)},
                      {"value", cell.value},
                      {"ink", bright ? "#111111" : "#ffffff"}});
  }
  const auto place = [](const char* field, const std::string& axis_title) {
    return json{{"field", field}, {"type", "ordinal"}, {"title", axis_title}, {"sort", nullptr}};
  };
  const std::string format = fmt::format(".{}f", digits);
  const json where = {{"x", place("x", x_title)}, {"y", place("y", y_title)}};
  json rects = where, texts = where;
  rects["color"] = {{"field", "value"},
                    {"type", "quantitative"},
                    {"title", value_title},
                    {"scale", {{"range", cividis}}},
                    {"legend", {{"title", value_title}, {"format", format}}}};
  rects["tooltip"] = {tip("x", x_title, false), tip("y", y_title, false), tip("value", value_title)};
  texts["text"] = {{"field", "value"}, {"type", "quantitative"}, {"format", format}};
  texts["color"] = {{"field", "ink"}, {"type", "nominal"}, {"scale", nullptr}, {"legend", nullptr}};
  const json layers = {{{"mark", "rect"}, {"encoding", rects}}, {{"mark", {{"type", "text"}}}, {"encoding", texts}}};
  return finish(id, title, {{"data", {{"values", values}}}, {"layer", layers}}, /*emulated=*/false);
}

}  // namespace kvarena::reports
