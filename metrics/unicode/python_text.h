#pragma once
// Python's string methods on UTF-8 text, for scorers whose definition is Python code.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena::metrics {

/// str.split(): on runs of Unicode white space; no empty pieces.
[[nodiscard]] std::vector<std::string> split_white_space(std::string_view text);
/// str.split(separator): keeps empty pieces; `separator` is not empty.
[[nodiscard]] std::vector<std::string> split_on(std::string_view text, std::string_view separator);
/// " ".join(text.split())
[[nodiscard]] std::string collapse_white_space(std::string_view text);

/// str.strip(), lstrip(), rstrip() of Unicode white space. The result points into `text`.
[[nodiscard]] std::string_view strip(std::string_view text);
[[nodiscard]] std::string_view lstrip(std::string_view text);
[[nodiscard]] std::string_view rstrip(std::string_view text);
/// str.strip(characters): a set of ASCII characters, taken from both ends.
[[nodiscard]] std::string_view strip_any(std::string_view text, std::string_view characters);
[[nodiscard]] std::string_view lstrip_any(std::string_view text, std::string_view characters);

/// str.isupper(), str.islower(): whether there are letters with a case and all of them have this one.
[[nodiscard]] bool is_upper(std::string_view text);
[[nodiscard]] bool is_lower(std::string_view text);

/// str.replace(from, to); `from` is not empty.
[[nodiscard]] std::string replace_all(std::string_view text, std::string_view from, std::string_view to);
/// `part in text`
[[nodiscard]] inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// string.punctuation: the 32 ASCII marks.
[[nodiscard]] bool is_ascii_punctuation(char32_t c);

/// re.findall(r"\d+", text): runs of decimal digits of any script.
[[nodiscard]] std::vector<std::string> digit_runs(std::string_view text);
/// The first run of decimal digits at or after byte `from`; empty when there is none.
[[nodiscard]] std::string_view first_digit_run(std::string_view text, size_t from = 0);

/// round(value, digits) of a Python float: the exact binary value, half to even (round(2.675, 2) is 2.67).
[[nodiscard]] double python_round(double value, int digits);
/// Rounds as numpy does a scalar: times 10^digits, to the nearest integer (half to even), divided (2.68).
[[nodiscard]] double numpy_round(double value, int digits);

}  // namespace kvarena::metrics
