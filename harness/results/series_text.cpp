#include "harness/results/series_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>

namespace kvarena::results {

std::string series_text(std::span<const float> values) {
  std::string text = "[";
  for (const float value : values) {
    if (text.size() > 1) text += ',';
    if (std::isnan(value)) {
      text += "null";
    } else if (std::isinf(value)) {
      text += value > 0 ? "9e999" : "-9e999";
    } else {
      fmt::format_to(std::back_inserter(text), "{}", value);
    }
  }
  return text + "]";
}

std::optional<std::vector<float>> parse_series(std::string_view text) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return std::nullopt;
  text = text.substr(1, text.size() - 2);
  std::vector<float> values;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    float value = std::numeric_limits<float>::quiet_NaN();
    if (item != "null") {
      const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), value);
      const bool beyond = error == std::errc::result_out_of_range;
      if ((error != std::errc() && !beyond) || end != item.data() + item.size()) return std::nullopt;
      if (beyond) value = std::copysign(std::numeric_limits<float>::infinity(), item.front() == '-' ? -1.0F : 1.0F);
    }
    values.push_back(value);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return values;
}

}  // namespace kvarena::results
