#include "reports/number.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace kvarena::reports {
namespace {

constexpr const char* kMinus = "\u2212";

std::string significant(double value, int digits) {
  if (value == 0) return "0";
  const int exponent = static_cast<int>(std::floor(std::log10(value)));
  if (exponent < -4 || exponent >= 9) return fmt::format("{:.{}e}", value, std::max(0, digits - 1));
  return fmt::format("{:.{}f}", value, std::max(0, digits - 1 - exponent));
}

std::string in_bytes(double value, int digits) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : digits, kUnits[unit]);
}

// `value` is finite and not negative.
std::string magnitude(double value, NumberFormat format) {
  switch (format.style) {
    case NumberStyle::fixed: return fmt::format("{:.{}f}", value, format.digits);
    case NumberStyle::significant: return significant(value, format.digits);
    case NumberStyle::bytes: return in_bytes(value, format.digits);
    case NumberStyle::factor: return fmt::format("{:.{}f}×", value, format.digits);
  }
  return {};
}

bool shows_nothing(const std::string& text) { return text.find_first_of("123456789") == std::string::npos; }

}  // namespace

std::string format_number(double value, NumberFormat format) {
  if (std::isnan(value)) return "n/a";
  if (std::isinf(value)) return value > 0 ? "∞" : std::string(kMinus) + "∞";
  const std::string text = magnitude(std::abs(value), format);
  return value < 0 && !shows_nothing(text) ? kMinus + text : text;
}

std::string format_signed(double value, NumberFormat format) {
  const std::string text = format_number(value, format);
  return std::isfinite(value) && value > 0 && !shows_nothing(text) ? "+" + text : text;
}

std::string full_precision(double value) { return std::isfinite(value) ? fmt::format("{}", value) : std::string(); }

}  // namespace kvarena::reports
