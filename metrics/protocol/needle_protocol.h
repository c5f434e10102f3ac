#pragma once
// Needle in a haystack: the grid and where the needle goes.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace kvarena::metrics {

/// round(linspace(min, max, n)), halves to even.
[[nodiscard]] std::vector<int64_t> needle_grid(double min, double max, int64_t n);

/// Depths x themselves at 0 and 100, else round(100 / (1 + exp(0.1 (x - 50))), 3), over linspace(min, max, n).
[[nodiscard]] std::vector<double> needle_depths_sigmoid(double min, double max, int64_t n);

struct NeedleInsertion {
  std::vector<int64_t> ids;
  int64_t position = 0;  ///< where the needle starts; 0 at a depth above 0 means no sentence end was found before it
};

/// The context cut so that context and needle fit context_length - buffer, with the needle at depth_percent, moved back
/// to the end of a sentence (a token of period_ids); appended at depth 100.
[[nodiscard]] NeedleInsertion insert_needle(std::span<const int64_t> context, std::span<const int64_t> needle,
                                            std::span<const int64_t> period_ids, int64_t context_length, int64_t buffer,
                                            double depth_percent);

}  // namespace kvarena::metrics
