#pragma once
// Numbers that stand beside what a codec stores of entries, and complete it (harness/cache/dequant_program.h).

#include <cstdint>

namespace kvarena::kernels {

/// x * factor + offset.
struct RowScale {
  float factor = 1, offset = 0;
};

/// A number that is kept by itself.
struct PlacedNumber {
  int32_t channel = 0;  // over all kv heads
  float value = 0;
};

}  // namespace kvarena::kernels
