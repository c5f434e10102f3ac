#include "reports/scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "harness/core/error.h"
#include "reports/number.h"

namespace kvarena::reports {
namespace {

// 12000 -> "12k", with at most three significant digits and no trailing zeros.
std::string si(double value) {
  constexpr std::array<std::pair<double, const char*>, 4> kPrefixes = {
      {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}};
  for (const auto& [factor, prefix] : kPrefixes) {
    if (std::abs(value) >= factor * 0.9995) return fmt::format("{:.3g}{}", value / factor, prefix);
  }
  return fmt::format("{:.3g}", value);
}

std::string with_sign(std::string text) {
  if (text.starts_with('-')) text.replace(0, 1, "\u2212");
  return text;
}

int places_of(double step) { return std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9))); }

std::vector<Tick> linear_ticks(double low, double high, int about, const std::string& format) {
  const double step = std::max(tick_step(high - low, about), format == "d" ? 1.0 : 0.0);
  std::vector<Tick> ticks;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) {
    const double value = i * step;
    ticks.push_back({value, !format.empty() ? format_d3(value, format)
                            : std::abs(high) >= 10000
                                ? with_sign(si(value))
                                : with_sign(fmt::format("{:.{}f}", i == 0 ? 0 : value, places_of(step)))});
  }
  return ticks;
}

std::string log_label(double value) {
  if (value >= 1e-4 && value < 1e4) return with_sign(fmt::format("{:.10g}", value));
  return value >= 1e4 && value < 1e15 ? si(value) : fmt::format("{:.0e}", value);
}

std::vector<Tick> log_ticks(double low, double high, int about, const std::string& format) {
  const double decades = std::log10(high / low);
  std::vector<double> factors = {1};
  if (decades * 3 <= about + 1) factors = {1, 2, 5};
  if (decades <= 1 && about >= 6) factors = {1, 1.5, 2, 3, 4, 5, 7};
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / about)));
  std::vector<Tick> ticks;
  for (int power = static_cast<int>(std::floor(std::log10(low))); power <= std::ceil(std::log10(high)); power += 1) {
    if (power % stride != 0) continue;
    for (const double factor : factors) {
      const double value = factor * std::pow(10.0, power);
      if (value < low * (1 - 1e-9) || value > high * (1 + 1e-9)) continue;
      ticks.push_back({value, format.empty() ? log_label(value) : format_d3(value, format)});
    }
  }
  return ticks;
}

double nice_log(double value, bool up) {
  const double power = std::pow(10.0, std::floor(std::log10(value) + 1e-12));
  const double share = value / power;
  constexpr std::array<double, 4> kSteps = {1, 2, 5, 10};
  if (up) return *std::find_if(kSteps.begin(), kSteps.end(), [&](double s) { return s >= share - 1e-9; }) * power;
  return *std::find_if(kSteps.rbegin(), kSteps.rend(), [&](double s) { return s <= share + 1e-9; }) * power;
}

}  // namespace

double tick_step(double span, int about) {
  if (!(span > 0)) return 1;
  const double raw = span / std::max(1, about);
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  const double share = raw / power;
  return power * (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10);
}

std::string format_d3(double value, const std::string& format) {
  if (format.empty()) return format_number(value, {NumberStyle::significant, 3});
  const char type = format.back();
  const size_t dot = format.find('.');
  const int digits = dot == std::string::npos ? -1 : std::atoi(format.c_str() + dot + 1);
  switch (type) {
    case 'd': return with_sign(fmt::format("{:.0f}", value));
    case 'f': return with_sign(fmt::format("{:.{}f}", value, digits < 0 ? 6 : digits));
    case '%': return with_sign(fmt::format("{:.{}f}%", value * 100, digits < 0 ? 0 : digits));
    case 's': return with_sign(si(value));
    default: break;
  }
  fail(
      {.place = "chart specification: axis.format", .found = format, .expected = "a d3 format ending in d, f, % or s"});
}

double PositionScale::at(double value) const {
  if (kind == Kind::log) {
    const double share = std::log(std::max(value, 1e-300) / low) / std::log(high / low);
    return start + share * (end - start);
  }
  return start + (value - low) / (high - low) * (end - start);
}

double PositionScale::middle(const std::string& category) const {
  const auto found = std::find(categories.begin(), categories.end(), category);
  if (found == categories.end()) return -1;
  const double step = (end - start) / static_cast<double>(categories.size());
  return start + (static_cast<double>(found - categories.begin()) + 0.5) * step;
}

double PositionScale::band() const {
  return categories.empty() ? 0 : std::abs(end - start) / static_cast<double>(categories.size()) * (1 - padding);
}

bool PositionScale::has(const std::string& category) const {
  return std::find(categories.begin(), categories.end(), category) != categories.end();
}

void PositionScale::make_nice(int about) {
  if (kind == Kind::band) return;
  if (kind == Kind::log) {
    low = nice_log(low, false);
    high = nice_log(high, true);
    return;
  }
  const double step = tick_step(high - low, about);
  low = std::floor(low / step + 1e-9) * step;
  high = std::ceil(high / step - 1e-9) * step;
}

std::vector<Tick> PositionScale::ticks(int about, const std::string& format) const {
  if (kind == Kind::log) return log_ticks(low, high, about, format);
  if (kind == Kind::linear) return linear_ticks(low, high, about, format);
  std::vector<Tick> ticks;
  for (size_t at = 0; at < categories.size(); ++at) ticks.push_back({static_cast<double>(at), categories[at]});
  return ticks;
}

}  // namespace kvarena::reports
