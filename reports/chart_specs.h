#pragma once
// The charts that reports draw, from plain numbers to Vega-Lite specifications.

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "metrics/statistics.h"
#include "reports/chart.h"

namespace kvarena::reports {

struct AxisSpec {
  std::string title;
  bool log = false;
  bool zero = false;
  bool whole = false;              // counts, with ticks at whole numbers
  std::vector<double> marks = {};  // where something happened: rules across the plot
};

struct LinePoint {
  double x = 0;
  double y = 0;
  std::optional<metrics::Interval> interval;
};

struct LineSeries {
  std::string label;
  std::vector<LinePoint> points;
  bool baseline = false;  // drawn in the text's colour
  bool emulated = false;  // its label says so
};

/// Lines with bands where intervals are given. On a log axis points at or below zero are left out.
[[nodiscard]] Chart line_chart(const std::string& id, const std::string& title, const AxisSpec& x, const AxisSpec& y,
                               const std::vector<LineSeries>& series);

/// The share of values that are no larger, in percent, at each value: a cumulative distribution.
[[nodiscard]] std::vector<LinePoint> cumulative_points(std::vector<double> values);

struct ScatterPoint {
  std::string series;  // decides colour and shape
  std::string label;   // written beside the point
  double x = 0;
  double y = 0;
  std::optional<metrics::Interval> y_interval;
  bool baseline = false;
  bool emulated = false;    // its label says so
  bool on_segment = false;  // part of the Pareto front, which is drawn as a dashed staircase
};

/// Points with error bars and labels.
[[nodiscard]] Chart scatter_chart(const std::string& id, const std::string& title, const AxisSpec& x, const AxisSpec& y,
                                  const std::vector<ScatterPoint>& points);

/// Sets on_segment on the points that no other point beats in both directions: smaller x, and larger y or, with
/// `lower_is_better`, smaller.
void mark_pareto_front(std::vector<ScatterPoint>& points, bool lower_is_better = false);

struct BarValue {
  std::string category;  // one row of bars
  std::string part;      // a bar in the row (grouped) or a piece of it (stacked); empty when there is one
  double value = 0;
  std::optional<metrics::Interval> interval;
  bool emulated = false;  // its category says so
};

enum class BarLayout { grouped, stacked };

/// Horizontal bars, so that long labels stay readable; points on a logarithmic axis, where no length begins at zero.
[[nodiscard]] Chart bar_chart(const std::string& id, const std::string& title, const AxisSpec& value,
                              const std::vector<BarValue>& bars, BarLayout layout = BarLayout::grouped);

struct HeatCell {
  std::string x;
  std::string y;
  double value = 0;
};

/// Cells in the order given; the value is written inside where there is room. Dark is low, bright is high (cividis).
[[nodiscard]] Chart heat_map(const std::string& id, const std::string& title, const std::string& x_title,
                             const std::string& y_title, const std::string& value_title,
                             const std::vector<HeatCell>& cells, int digits = 2);

}  // namespace kvarena::reports
