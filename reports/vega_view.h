#pragma once
// Inside the reports folder: a Vega-Lite specification, read and checked, as the renderer wants it.

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace kvarena::reports {

enum class FieldType { quantitative, nominal, ordinal };

struct FieldDef {
  std::string field;
  FieldType type = FieldType::nominal;
  std::string title;
};

struct Channel {
  FieldDef def;
  nlohmann::json value;  // constant in the channel's own terms (a colour, a text); null when absent
  nlohmann::json datum;  // constant in the data's terms; null when absent
  nlohmann::json scale;  // object, or null in the specification: values are used as they are
  bool raw = false;      // "scale": null
  nlohmann::json axis;
  nlohmann::json legend;
  bool hide_legend = false;        // "legend": null
  bool keep_order = false;         // "sort": null
  std::vector<std::string> order;  // "sort": [..]
  bool stack = true;               // false: "stack": null or false
  std::string format;              // of text
  std::vector<FieldDef> list;      // of tooltip
};

struct Layer {
  std::string mark;
  nlohmann::json options;  // the mark's own members: filled, size, point, strokeDash, ...
  std::map<std::string, Channel> encoding;
  nlohmann::json rows;  // array of objects

  [[nodiscard]] const Channel* channel(const std::string& name) const;
  /// The row's value in a channel: its field, or the channel's datum; null when the row lacks it.
  [[nodiscard]] nlohmann::json data(const std::string& name, const nlohmann::json& row) const;
  [[nodiscard]] std::optional<double> number(const std::string& name, const nlohmann::json& row) const;
};

struct View {
  std::string title;
  std::string description;
  double height = 320;  // of the plot, pixels
  bool height_given = false;
  std::vector<Layer> layers;
};

/// Throws UserError for what is no specification of the subset in chart.h.
[[nodiscard]] View read_view(const nlohmann::json& spec);

/// A category as text: strings as they are, numbers in their shortest form.
[[nodiscard]] std::string category_text(const nlohmann::json& value);

}  // namespace kvarena::reports
