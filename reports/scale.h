#pragma once
// Inside the reports folder: from data to pixels, and the ticks that a reader finds natural.

#include <string>
#include <vector>

namespace kvarena::reports {

struct Tick {
  double value = 0;  // of the data; the index of the category on a band scale
  std::string label;
};

/// One direction of a plot.
struct PositionScale {
  enum class Kind { linear, log, band };
  Kind kind = Kind::linear;
  double low = 0;  // of the domain; above 0 on a log scale
  double high = 1;
  std::vector<std::string> categories;  // of a band scale
  double start = 0;                     // pixel of `low`, or of the first band's outer edge
  double end = 1;
  double padding = 0.1;  // share of a band left free, both sides together

  /// Pixel of a number.
  [[nodiscard]] double at(double value) const;
  /// Pixel of the middle of a category's band; negative when there is no such category.
  [[nodiscard]] double middle(const std::string& category) const;
  /// Pixels of one band between its paddings.
  [[nodiscard]] double band() const;
  [[nodiscard]] bool has(const std::string& category) const;

  /// Widens a linear domain to multiples of the tick step, a log domain to 1, 2 or 5 times a power of ten.
  void make_nice(int about);
  /// About so many ticks inside the domain; on a log scale powers of ten, with 2 and 5 between where there is room.
  /// `format` is a d3 format of the forms "", "d", "s", "%", ".2f", ".1%", "~s"; "" prints as many places as needed,
  /// "d" stands for whole numbers only.
  [[nodiscard]] std::vector<Tick> ticks(int about, const std::string& format) const;
};

/// 1, 2 or 5 times a power of ten, so that `span` holds about `about` steps.
[[nodiscard]] double tick_step(double span, int about);

/// A number in a d3 format of the forms listed at ticks().
[[nodiscard]] std::string format_d3(double value, const std::string& format);

}  // namespace kvarena::reports
