#include "reports/vega_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/core/error.h"
#include "reports/number.h"

namespace kvarena::reports {
namespace {

using nlohmann::json;

const std::set<std::string> kMarks = {"line", "area", "point", "circle",   "bar",
                                      "rect", "rule", "tick",  "errorbar", "text"};
const std::set<std::string> kChannels = {"x",     "y",          "x2",   "y2",     "xOffset", "yOffset", "color",
                                         "shape", "strokeDash", "text", "detail", "tooltip", "opacity"};

[[noreturn]] void refuse(const std::string& place, const std::string& found, const std::string& expected) {
  fail({.place = "chart specification: " + place, .found = found, .expected = expected});
}

FieldType read_type(const json& def, const std::string& place) {
  const std::string type = def.value("type", "nominal");
  if (type == "quantitative") return FieldType::quantitative;
  if (type == "ordinal") return FieldType::ordinal;
  if (type == "nominal") return FieldType::nominal;
  refuse(place + ".type", type, "quantitative, ordinal or nominal");
}

FieldDef read_field(const json& def, const std::string& place) {
  if (!def.is_object()) refuse(place, def.dump(), "an object");
  FieldDef field{.field = def.value("field", ""), .type = read_type(def, place), .title = def.value("field", "")};
  if (def.contains("title")) field.title = def["title"].is_null() ? "" : def["title"].get<std::string>();
  return field;
}

void read_sort(const json& def, Channel& channel) {
  const auto sort = def.find("sort");
  if (sort == def.end()) return;
  channel.keep_order = sort->is_null();
  if (!sort->is_array()) return;
  for (const json& value : *sort) channel.order.push_back(category_text(value));
}

Channel read_channel(const std::string& name, const json& def) {
  const std::string place = "encoding." + name;
  Channel channel;
  if (name == "tooltip" && def.is_array()) {
    for (const json& item : def) channel.list.push_back(read_field(item, place));
    return channel;
  }
  channel.def = read_field(def, place);
  channel.value = def.value("value", json());
  channel.datum = def.value("datum", json());
  channel.raw = def.contains("scale") && def["scale"].is_null();
  channel.scale = channel.raw ? json::object() : def.value("scale", json::object());
  channel.axis = def.contains("axis") && !def["axis"].is_null() ? def["axis"] : json::object();
  if (channel.axis.contains("title")) {
    channel.def.title = channel.axis["title"].is_null() ? "" : channel.axis["title"].get<std::string>();
  }
  channel.format = def.value("format", "");
  channel.hide_legend = def.contains("legend") && def["legend"].is_null();
  channel.legend = def.contains("legend") && def["legend"].is_object() ? def["legend"] : json::object();
  const auto stack = def.find("stack");
  channel.stack = stack == def.end() || (!stack->is_null() && *stack != false);
  read_sort(def, channel);
  const std::string type = channel.scale.value("type", "linear");
  if (!std::set<std::string>{"linear", "log", "band", "point", "ordinal"}.contains(type)) {
    refuse(place + ".scale.type", type, "linear, log, band, point or ordinal");
  }
  return channel;
}

const json& rows_of(const json& spec, const json& inherited) {
  const auto data = spec.find("data");
  if (data == spec.end()) return inherited;
  if (!data->is_object() || !data->contains("values") || !(*data)["values"].is_array()) {
    refuse("data", data->dump().substr(0, 80), "{\"values\": [..]}, the data inline");
  }
  return (*data)["values"];
}

Layer read_layer(const json& spec, const json& shared_encoding, const json& shared_rows) {
  Layer layer;
  const json mark = spec.value("mark", json());
  layer.mark = mark.is_object() ? mark.value("type", "") : mark.is_string() ? mark.get<std::string>() : "";
  if (!kMarks.contains(layer.mark)) refuse("mark", mark.dump(), fmt::format("one of {}", fmt::join(kMarks, ", ")));
  layer.options = mark.is_object() ? mark : json::object();
  json encoding = shared_encoding;
  encoding.update(spec.value("encoding", json::object()));
  for (const auto& [name, def] : encoding.items()) {
    if (!kChannels.contains(name))
      refuse("encoding." + name, name, fmt::format("one of {}", fmt::join(kChannels, ", ")));
    layer.encoding[name] = read_channel(name, def);
  }
  layer.rows = rows_of(spec, shared_rows);
  for (const json& row : layer.rows) {
    if (!row.is_object()) refuse("data.values", row.dump(), "objects");
  }
  return layer;
}

std::string read_title(const json& spec) {
  const auto title = spec.find("title");
  if (title == spec.end() || title->is_null()) return {};
  if (title->is_object()) return title->value("text", "");
  return title->get<std::string>();
}

}  // namespace

const Channel* Layer::channel(const std::string& name) const {
  const auto found = encoding.find(name);
  return found == encoding.end() ? nullptr : &found->second;
}

json Layer::data(const std::string& name, const json& row) const {
  const Channel* channel = this->channel(name);
  if (channel == nullptr) return {};
  if (!channel->datum.is_null()) return channel->datum;
  const auto found = row.find(channel->def.field);
  return found == row.end() ? json() : *found;
}

std::optional<double> Layer::number(const std::string& name, const json& row) const {
  const json value = data(name, row);
  if (!value.is_number() || !std::isfinite(value.get<double>())) return std::nullopt;
  return value.get<double>();
}

View read_view(const json& spec) {
  if (!spec.is_object()) refuse("top", spec.type_name(), "an object");
  try {
    View view;
    view.title = read_title(spec);
    view.description = spec.value("description", "");
    if (spec.contains("height") && spec["height"].is_number()) {
      view.height = spec["height"].get<double>();
      view.height_given = true;
    }
    const json shared_encoding = spec.value("encoding", json::object());
    const json no_rows = json::array();
    const json& rows = rows_of(spec, no_rows);
    if (!spec.contains("layer")) {
      view.layers.push_back(read_layer(spec, json::object(), rows));
      return view;
    }
    for (const json& layer : spec["layer"]) view.layers.push_back(read_layer(layer, shared_encoding, rows));
    return view;
  } catch (const json::exception& error) {
    throw UserError(fmt::format("chart specification: a member has the wrong type: {}", error.what()));
  }
}

std::string category_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return full_precision(value.get<double>());
  return value.is_null() ? "" : value.dump();
}

}  // namespace kvarena::reports
