#pragma once
// Inside the results folder: a series as the JSON array of its column.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena::results {

/// Shortest digits that read back as the same float; NaN is null, infinity 9e999 (which SQLite reads as infinity).
[[nodiscard]] std::string series_text(std::span<const float> values);
/// Nothing when the text is no series.
[[nodiscard]] std::optional<std::vector<float>> parse_series(std::string_view text);

}  // namespace kvarena::results
