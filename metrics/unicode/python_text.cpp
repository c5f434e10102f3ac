#include "metrics/unicode/python_text.h"

#include <fmt/format.h>

#include <cmath>

#include "metrics/unicode/code_points.h"

namespace kvarena::metrics {

std::vector<std::string> split_white_space(std::string_view text) {
  std::vector<std::string> pieces;
  size_t start = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t here = i;
    if (!is_space(next_code_point(text, i))) continue;
    if (here > start) pieces.emplace_back(text.substr(start, here - start));
    start = i;
  }
  if (start < text.size()) pieces.emplace_back(text.substr(start));
  return pieces;
}

std::vector<std::string> split_on(std::string_view text, std::string_view separator) {
  std::vector<std::string> pieces;
  size_t start = 0;
  for (;;) {
    const size_t found = text.find(separator, start);
    pieces.emplace_back(text.substr(start, found - start));
    if (found == std::string_view::npos) return pieces;
    start = found + separator.size();
  }
}

std::string collapse_white_space(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool gap = false;
  for (size_t i = 0; i < text.size();) {
    const size_t here = i;
    if (is_space(next_code_point(text, i))) {
      gap = true;
      continue;
    }
    if (gap && !out.empty()) out.push_back(' ');
    gap = false;
    out.append(text.substr(here, i - here));
  }
  return out;
}

std::string_view lstrip(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t here = i;
    if (!is_space(next_code_point(text, i))) return text.substr(here);
  }
  return {};
}

std::string_view rstrip(std::string_view text) {
  size_t end = 0;
  for (size_t i = 0; i < text.size();) {
    if (!is_space(next_code_point(text, i))) end = i;
  }
  return text.substr(0, end);
}

std::string_view strip(std::string_view text) { return rstrip(lstrip(text)); }

std::string_view lstrip_any(std::string_view text, std::string_view characters) {
  const size_t first = text.find_first_not_of(characters);
  return first == std::string_view::npos ? std::string_view{} : text.substr(first);
}

std::string_view strip_any(std::string_view text, std::string_view characters) {
  const std::string_view rest = lstrip_any(text, characters);
  return rest.substr(0, rest.find_last_not_of(characters) + 1);
}

namespace {

bool has_case(std::string_view text, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  bool found = false;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    if (other(c) || is_title(c)) return false;
    found = found || wanted(c);
  }
  return found;
}

}  // namespace

bool is_upper(std::string_view text) { return has_case(text, is_upper, is_lower); }
bool is_lower(std::string_view text) { return has_case(text, is_lower, is_upper); }

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  size_t start = 0;
  for (size_t found; (found = text.find(from, start)) != std::string_view::npos; start = found + from.size()) {
    out.append(text.substr(start, found - start)).append(to);
  }
  return out.append(text.substr(start));
}

bool is_ascii_punctuation(char32_t c) {
  return (c >= U'!' && c <= U'/') || (c >= U':' && c <= U'@') || (c >= U'[' && c <= U'`') || (c >= U'{' && c <= U'~');
}

std::string_view first_digit_run(std::string_view text, size_t from) {
  size_t start = std::string_view::npos;
  for (size_t i = from; i < text.size();) {
    const size_t here = i;
    const bool digit = is_decimal(next_code_point(text, i));
    if (digit && start == std::string_view::npos) start = here;
    if (!digit && start != std::string_view::npos) return text.substr(start, here - start);
  }
  return start == std::string_view::npos ? std::string_view{} : text.substr(start);
}

std::vector<std::string> digit_runs(std::string_view text) {
  std::vector<std::string> runs;
  for (std::string_view run = first_digit_run(text); !run.empty();) {
    runs.emplace_back(run);
    run = first_digit_run(text, static_cast<size_t>(run.data() - text.data()) + run.size());
  }
  return runs;
}

double python_round(double value, int digits) {
  return std::isfinite(value) ? std::stod(fmt::format("{:.{}f}", value, digits)) : value;
}

double numpy_round(double value, int digits) {
  const double scale = std::pow(10.0, digits);
  return std::nearbyint(value * scale) / scale;
}

}  // namespace kvarena::metrics
