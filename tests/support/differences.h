#pragma once
// Differences between rows of numbers and their expected values.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>

namespace kvarena::testing {

/// Largest difference over the largest number of `want`; where all of those are zero, the largest difference.
[[nodiscard]] inline double relative_error(std::span<const float> got, std::span<const float> want) {
  EXPECT_EQ(got.size(), want.size());
  double difference = 0, largest = 0;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    difference = std::max(difference, std::fabs(static_cast<double>(got[i]) - want[i]));
    largest = std::max(largest, std::fabs(static_cast<double>(want[i])));
  }
  return largest == 0 ? difference : difference / largest;
}

[[nodiscard]] inline double mean_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) sum += std::fabs(static_cast<double>(a[i]) - b[i]);
  return sum / static_cast<double>(a.size());
}

}  // namespace kvarena::testing
