#pragma once
// Per-path internal: products in 16-bit integers with codes as they lie.
//
// Codes of 1, 2 and 4 bits are cut out of their dwords two at a time, one into each half of a lane: a shift and a mask
// for 32 codes. They meet numbers x that were rounded to integers X, |X| <= 32767, under one step = max |x| / 32767;
// sums of integer products are exact in any order and with any instruction. With x = step X + d, half a step bounding
// d,
//   sum of x level = step (sum of X code) + (first + middle) (sum of x) - middle step (sum of X) + sum of d (code -
//   middle)
// for level = first + code and middle = (2^bits - 1) / 2. All but the last sum is computed: what rounding takes away is
// given back as if every code were the middle one.

#include "kernels/quantize/levels_simd.h"

namespace kvarena::kernels {
namespace {

constexpr float kLargestInteger = 32767;

/// The formats whose products are done in integers. It depends on the format alone: how many rows share a call must not
/// decide how a row is computed. More bits would show the rounding: 8-bit codes resolve 2^-8 of a group's range, and a
/// few hundred roundings of 2^-16 add up to more than is far below it.
KVARENA_INLINE bool has_integer_levels(const QuantFormat& f) {
  return f.levels == Levels::uniform && (f.bits == 1 || f.bits == 2 || f.bits == 4);
}

/// (first + middle) and middle of the text above.
struct LevelShift {
  float level, code;
};
KVARENA_INLINE LevelShift level_shift(const QuantFormat& f) {
  const float middle = static_cast<float>((1 << f.bits) - 1) / 2;
  return {static_cast<float>(f.first_level) + middle, middle};
}

/// max |x| -> the step and its inverse; both 0 where all x vanish.
struct Step {
  float step, inverse;
};
KVARENA_INLINE Step step_of(float largest) {
  if (largest < 1e-30f) return {0, 0};  // the inverse would overflow
  return {largest * (1 / kLargestInteger), kLargestInteger / largest};
}

/// Codes `half` and half + 16 / BITS of each lane's dword in the lane's two halves.
template <int BITS>
KVARENA_INLINE U32x16 code_pair(U32x16 word, int half) {
  constexpr uint32_t kMask = ((1u << BITS) - 1) * 0x10001u;
  return masked(shift_right(word, BITS * half), kMask);
}

/// Sixteen lanes of the dword whose bits a float holds.
KVARENA_INLINE U32x16 repeat_bits(const float* x) { return bits_of(set16(*x)); }

}  // namespace
}  // namespace kvarena::kernels
