#pragma once
// LongBench-Write: length and judged quality of long outputs.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kvarena::metrics {

/// Characters U+4E00..U+9FFF plus runs of ASCII letters that touch no other letter, digit or underscore. "don't" counts
/// 2, "x1" and "café" 0.
[[nodiscard]] int64_t longwriter_word_count(std::string_view text);

/// 0..100: falls linearly to 0 at four times or a third of the required length. 0 for an empty response.
[[nodiscard]] double longwriter_length_score(int64_t required, int64_t produced);

/// The judge's six marks, 1 to 5.
using JudgeMarks = std::map<std::string, double>;

constexpr std::array<std::string_view, 6> kJudgeDimensions = {"Relevance", "Accuracy",          "Coherence",
                                                              "Clarity",   "Breadth and Depth", "Reading Experience"};

/// Marks from a judge's output: the ```json block if there is one, newlines deleted, parsed as JSON; nothing unless all
/// six marks are there.
[[nodiscard]] std::optional<JudgeMarks> parse_judge(std::string_view output);

/// Per dimension (mean - 1) * 25 over the judged rows, a missing mark counting 3, and "total", their mean.
[[nodiscard]] std::map<std::string, double> longwriter_quality_score(std::span<const JudgeMarks> rows);

}  // namespace kvarena::metrics
