#pragma once
// Side data of a codec that corrects decoded entries: scales and exact outliers (harness/cache/dequant_program.h).

#include <cstdint>

namespace kvarena::kernels {

/// A linear map: x * factor + offset.
struct RowScale {
  float factor = 1, offset = 0;
};

/// An exact outlier.
struct PlacedNumber {
  int32_t channel = 0;  // counted over all kv heads
  float value = 0;
};

}  // namespace kvarena::kernels
