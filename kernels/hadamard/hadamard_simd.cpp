#include "kernels/common/simd.h"
#include "kernels/hadamard/hadamard_paths.h"

namespace kvarena::kernels {
namespace {

void row(float* x, int64_t n) {
  // Distances below a vector: plain loops, which the compiler turns into shuffles.
  for (int64_t step = 1; step < min_of(n, kLanes); step *= 2) {
    for (int64_t i = 0; i < n; i += 2 * step) {
      for (int64_t j = i; j < i + step; ++j) {
        const float a = x[j], b = x[j + step];
        x[j] = a + b;
        x[j + step] = a - b;
      }
    }
  }
  for (int64_t step = kLanes; step < n; step *= 2) {
    for (int64_t i = 0; i < n; i += 2 * step) {
      for (int64_t j = i; j < i + step; j += kLanes) {
        const F32x16 a = load16(x + j), b = load16(x + j + step);
        store16(x + j, add(a, b));
        store16(x + j + step, sub(a, b));
      }
    }
  }
  const float factor = 1 / __builtin_sqrtf(static_cast<float>(n));
  for (int64_t i = 0; i < n; i += kLanes) {
    const Mask16 lanes = first_lanes(n - i);
    store16(x + i, mul(load16(x + i, lanes), set16(factor)), lanes);
  }
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const HadamardTable hadamard_table;
const HadamardTable hadamard_table = {row};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
