#pragma once
// Internal: the loops that are timed.

#include <cstdint>

#include "kernels/common/dispatch.h"

namespace kvarena::kernels {

struct LimitsTable {
  /// Sums `bytes` (a multiple of 4 KiB) at data in eight streams; the sum keeps the loop alive.
  float (*read)(const float* data, int64_t bytes);
  /// `steps` rounds of 12 * 16 independent fused multiply-adds.
  float (*multiply_add)(int64_t steps);
};
KVARENA_DECLARE_TABLE(LimitsTable, limits_table);

extern const LimitsTable limits_reference;

inline constexpr int64_t kMultiplyAddsPerStep = 12 * 16;

}  // namespace kvarena::kernels
