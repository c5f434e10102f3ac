#include "reports/equal_quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "reports/emulated.h"

namespace kvarena::reports {
namespace {

/// The points of a series that no other of it beats in both, from small x and y to large.
std::vector<ScatterPoint> front_of(std::span<const ScatterPoint> points, const std::string& series) {
  std::vector<ScatterPoint> own;
  for (const ScatterPoint& point : points) {
    if (point.series == series) own.push_back(point);
  }
  mark_pareto_front(own);
  std::erase_if(own, [](const ScatterPoint& point) { return !point.on_segment; });
  std::ranges::sort(own, {}, &ScatterPoint::x);
  return own;
}

}  // namespace

std::optional<double> x_at_quality(std::span<const ScatterPoint> points, const std::string& series, double y) {
  const std::vector<ScatterPoint> front = front_of(points, series);
  for (size_t i = 0; i < front.size(); ++i) {
    if (front[i].y == y) return front[i].x;
    if (i == 0 || front[i].y < y || front[i - 1].y > y) continue;
    const double share = (y - front[i - 1].y) / (front[i].y - front[i - 1].y);
    return front[i - 1].x + share * (front[i].x - front[i - 1].x);
  }
  return std::nullopt;
}

std::optional<Table> equal_quality_table(const std::string& id, const std::string& time, const std::string& quality,
                                         std::span<const ScatterPoint> points) {
  constexpr NumberFormat kFixed2{.style = NumberStyle::fixed, .digits = 2};
  Table table{.id = id,
              .title = "At equal quality",
              .caption = fmt::format(
                  "{} of other methods at the quality of each setting, linear between the settings "
                  "that no other of the method beats in both, and how many times the setting's that "
                  "is. Means on both sides: whether qualities or times differ is for their own tables to say.",
                  time),
              .columns = {{.title = "Setting", .numeric = false},
                          {.title = quality, .format = kFixed2},
                          {.title = time, .format = kFixed2},
                          {.title = "Other method", .numeric = false},
                          {.title = time, .group = "At that quality", .format = kFixed2},
                          {.title = "Ratio", .unit = "×", .group = "At that quality", .format = kFixed2}}};
  std::map<std::string, std::string> names;  // series: its label where it is a point alone
  std::map<std::string, bool> emulated;      // series: whether a point of it is
  for (const ScatterPoint& point : points) {
    emulated[point.series] = emulated[point.series] || point.emulated;
    const bool first = names.emplace(point.series, marked_label(point.label, point.emulated)).second;
    if (!first) names[point.series] = point.series;
  }
  for (const ScatterPoint& point : points) {
    for (const auto& [series, name] : names) {
      if (series == point.series) continue;
      const std::optional<double> other = x_at_quality(points, series, point.y);
      if (!other || point.x <= 0) continue;
      const auto time_cell = [](double value, bool marked) {
        TableCell cell = number_cell(value);
        cell.emulated = marked;
        return cell;
      };
      const bool ours = point.emulated, others = emulated[series];
      table.rows.push_back(
          {.cells = {text_cell(marked_label(point.label, ours)), number_cell(point.y), time_cell(point.x, ours),
                     text_cell(name), time_cell(*other, others), time_cell(*other / point.x, ours || others)},
           .peers = -1});
    }
  }
  if (table.rows.empty()) return std::nullopt;
  return table;
}

}  // namespace kvarena::reports
