#pragma once
// Differences between rows of numbers and their expected values.

#include <span>

namespace kvarena::testing {

/// Largest difference over the largest number of `want`; where all of those are zero, the largest difference.
[[nodiscard]] double relative_error(std::span<const float> got, std::span<const float> want);

[[nodiscard]] double mean_difference(std::span<const float> a, std::span<const float> b);

}  // namespace kvarena::testing
