#pragma once
// Per-path internal: products of two neighbouring numbers in bf16, the earlier one in a lane's lower half, as VDPBF16PS
// computes them.

#include "kernels/common/simd.h"

namespace kvarena::kernels {
namespace {

/// sum + x.upper * w.upper, and then + x.lower * w.lower, each rounded once.
KVARENA_INLINE F32x16 add_pair(F32x16 sum, F32x16 x, F32x16 w) {
#if defined(__AVX512BF16__)
  return {_mm512_dpbf16_ps(sum.v, (__m512bh)_mm512_castps_si512(x.v), (__m512bh)_mm512_castps_si512(w.v))};
#else
  const U32x16 a = bits_of(x), b = bits_of(w);
  const F32x16 upper = fma(bits_of(masked(a, 0xffff0000U)), bits_of(masked(b, 0xffff0000U)), sum);
  return fma(bits_of(shift_left(a, 16)), bits_of(shift_left(b, 16)), upper);
#endif
}

#if defined(KVARENA_SIMD_AVX512)
/// Sixteen pairs of a number of the lower half and one of the upper.
KVARENA_INLINE F32x16 pair_halves(__m512i both) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return {_mm512_castsi512_ps(_mm512_permutexvar_epi16(order, both))};
}
#endif

/// Sixteen pairs of a number of `lower` and one of `upper`.
KVARENA_INLINE F32x16 load_pairs(const uint16_t* lower, const uint16_t* upper) {
#if defined(KVARENA_SIMD_AVX512)
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(lower));
  return pair_halves(
      _mm512_inserti64x4(_mm512_castsi256_si512(half), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(upper)), 1));
#else
  const U32x16 a = bits_of(load16(BF16{}, lower)), b = bits_of(load16(BF16{}, upper));
  return bits_of(either(shift_right(a, 16), b));
#endif
}

/// Sixteen pairs of two rows of sixteen, one behind the other.
KVARENA_INLINE F32x16 load_pairs(const uint16_t* rows) {
#if defined(KVARENA_SIMD_AVX512)
  return pair_halves(_mm512_loadu_si512(rows));
#else
  return load_pairs(rows, rows + kLanes);
#endif
}

/// Rounds n numbers, a multiple of 16, to n / 2 pairs; they may lie in the numbers' place.
KVARENA_INLINE void round_to_pairs(const float* x, int64_t n, float* pairs) {
  auto* to = reinterpret_cast<uint16_t*>(pairs);
  for (int64_t i = 0; i < n; i += kLanes) store16(BF16{}, to + i, load16(x + i));
}

/// Denormal operands and results count as zero between these two, as in the instruction.
KVARENA_INLINE void flush_denormals() { _mm_setcsr(_mm_getcsr() | 0x8040); }
KVARENA_INLINE void keep_denormals() { _mm_setcsr(_mm_getcsr() & ~0x8040U); }

}  // namespace
}  // namespace kvarena::kernels
