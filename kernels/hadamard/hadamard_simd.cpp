#include "kernels/common/simd.h"
#include "kernels/hadamard/hadamard_paths.h"

namespace kvarena::kernels {
namespace {

/// Signs of the lanes: 1 in lanes without bit N, -1 in lanes with it.
template <int N>
KVARENA_INLINE F32x16 signs() {
  constexpr auto kSign = [](int lane) { return lane / N % 2 == 0 ? 1.0f : -1.0f; };
  static constexpr float kSigns[16] = {kSign(0),  kSign(1),  kSign(2),  kSign(3), kSign(4),  kSign(5),
                                       kSign(6),  kSign(7),  kSign(8),  kSign(9), kSign(10), kSign(11),
                                       kSign(12), kSign(13), kSign(14), kSign(15)};
  return load16(kSigns);
}

/// Sums in the lanes without bit N, differences in those with it; a product by 1 or -1 loses nothing.
template <int N>
KVARENA_INLINE F32x16 butterfly(F32x16 x) {
  return fma(x, signs<N>(), swap_lanes<N>(x));
}

/// Rows shorter than a vector.
void short_row(float* x, int64_t n) {
  for (int64_t step = 1; step < n; step *= 2) {
    for (int64_t i = 0; i < n; i += 2 * step) {
      for (int64_t j = i; j < i + step; ++j) {
        const float a = x[j], b = x[j + step];
        x[j] = a + b;
        x[j + step] = a - b;
      }
    }
  }
  const float factor = 1 / __builtin_sqrtf(static_cast<float>(n));
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

void row(float* x, int64_t n) {
  if (n < kLanes) return short_row(x, n);
  for (int64_t i = 0; i < n; i += kLanes)
    store16(x + i, butterfly<8>(butterfly<4>(butterfly<2>(butterfly<1>(load16(x + i))))));
  for (int64_t step = kLanes; step < n; step *= 2) {
    for (int64_t i = 0; i < n; i += 2 * step) {
      for (int64_t j = i; j < i + step; j += kLanes) {
        const F32x16 a = load16(x + j), b = load16(x + j + step);
        store16(x + j, add(a, b));
        store16(x + j + step, sub(a, b));
      }
    }
  }
  const F32x16 factor = set16(1 / __builtin_sqrtf(static_cast<float>(n)));
  for (int64_t i = 0; i < n; i += kLanes) store16(x + i, mul(load16(x + i), factor));
}

void lanes(float* x, int64_t n) {
  for (int64_t step = 1; step < n; step *= 2) {
    for (int64_t i = 0; i < n; i += 2 * step) {
      for (int64_t j = i; j < i + step; ++j) {
        float* const upper = x + j * kLanes;
        float* const lower = upper + step * kLanes;
        const F32x16 a = load16(upper), b = load16(lower);
        store16(upper, add(a, b));
        store16(lower, sub(a, b));
      }
    }
  }
  const F32x16 factor = set16(1 / __builtin_sqrtf(static_cast<float>(n)));
  for (int64_t i = 0; i < n; ++i) store16(x + i * kLanes, mul(load16(x + i * kLanes), factor));
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const HadamardTable hadamard_table;
const HadamardTable hadamard_table = {row, lanes};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
