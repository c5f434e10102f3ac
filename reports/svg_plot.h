#pragma once
// Inside the reports folder: what the parts of the renderer share. scales -> layout -> guides -> marks.

#include <optional>
#include <string>
#include <vector>

#include "reports/chart.h"
#include "reports/scale.h"
#include "reports/vega_view.h"

namespace kvarena::reports {

struct Box {
  double left = 0, top = 0, right = 0, bottom = 0;

  [[nodiscard]] double width() const { return right - left; }
  [[nodiscard]] double height() const { return bottom - top; }
  [[nodiscard]] bool overlaps(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
  [[nodiscard]] bool holds(const Box& inner) const {
    return inner.left >= left && inner.right <= right && inner.top >= top && inner.bottom <= bottom;
  }
};

/// From categories (or, for a colour, numbers) to looks.
struct StyleScale {
  bool present = false;
  bool continuous = false;  // a colour over numbers
  bool hide_legend = false;
  std::string field;
  std::string title;
  std::string format;
  std::vector<std::string> domain;
  std::vector<std::string> range;  // colours, shape names or dash patterns; taken round and round
  double low = 0, high = 1;        // of a continuous scale

  [[nodiscard]] const std::string& look(const std::string& category) const;
};

struct Plot {
  View view;
  SvgOptions options;
  PositionScale x, y;
  std::string x_title, y_title;
  std::string x_format, y_format;
  bool x_used = false, y_used = false;
  std::vector<std::string> x_offsets, y_offsets;  // categories within a band
  StyleScale color, shape, dash;
  Box area;  // of the plot, pixels
  std::string svg;
};

inline constexpr double kFontSize = 12;
inline constexpr double kTitleSize = 15;
inline constexpr double kLineHeight = 1.3;

/// Domains, ranges and titles; pixels are not known yet.
void build_scales(Plot& plot);
/// Title and legends at the top, room for the axes; sets `area` and the pixels of x and y. Returns the total height.
double draw_head_and_layout(Plot& plot);
void draw_axes(Plot& plot);
void draw_marks(Plot& plot);

/// Colour of a row's mark.
[[nodiscard]] std::string color_of(const Plot& plot, const Layer& layer, const nlohmann::json& row);
/// A value as tooltips and text marks show it.
[[nodiscard]] std::string tooltip_value(const nlohmann::json& value);
/// Pixel of a row along an axis (x, y, x2, y2); the middle of its (sub-)band on a band scale.
[[nodiscard]] std::optional<double> place(const Plot& plot, const Layer& layer, const nlohmann::json& row,
                                          const std::string& axis);
/// Rows of each line, in order of appearance; within a line by x.
[[nodiscard]] std::vector<std::vector<const nlohmann::json*>> groups_of(const Plot& plot, const Layer& layer);
/// Text marks: in the middle of bands, elsewhere in the nearest place where they meet nothing.
void draw_texts(Plot& plot, const Layer& layer);

/// "rgb" of a share in [0, 1] along a list of colours #rrggbb.
[[nodiscard]] std::string blend(const std::vector<std::string>& colors, double share);
/// A colour fit for an attribute: #rgb, #rrggbb or a plain name; black becomes currentColor, so that it shows on dark
/// paper; anything else is refused with UserError.
[[nodiscard]] std::string paint(const std::string& color);
/// A point of a Vega shape (circle, square, diamond, triangle-up, triangle-down, cross, plus) of `size` square pixels.
[[nodiscard]] std::string shape_path(const std::string& shape, double x, double y, double size);
/// A <text> element; `anchor` is start, middle or end; `y` is the middle of the line.
[[nodiscard]] std::string svg_text(double x, double y, const std::string& text, double size, const std::string& anchor,
                                   const std::string& attributes = "");
/// A coordinate with at most two places.
[[nodiscard]] std::string px(double value);

}  // namespace kvarena::reports
