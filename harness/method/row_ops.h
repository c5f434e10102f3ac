#pragma once
// Rotary embedding and RMS norm of rows outside the model's own layers: those of small heads, keys that move.

#include <cstdint>
#include <span>
#include <vector>

namespace kvarena {

/// Rotates rows [positions.size(), heads, head_dim] to their positions, or by them. inverse: radians per position, for
/// the first 2 * inverse.size() channels; magnitude: factor on cosine and sine.
void rotate_rows(float* rows, int64_t heads, int64_t head_dim, std::span<const double> inverse, double magnitude,
                 std::span<const int32_t> positions);

/// The RMS norm of rows [count, weight.size()].
[[nodiscard]] std::vector<float> normed_rows(const float* rows, int64_t count, const std::vector<float>& weight,
                                             float eps);

}  // namespace kvarena
