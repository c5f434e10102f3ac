#include "kernels/common/simd.h"
#include "kernels/limits/limits_paths.h"

namespace kvarena::kernels {
namespace {

float read(const float* data, int64_t bytes) {
  constexpr int kStreams = 8;
  const int64_t each = bytes / 4 / kStreams;
  F32x16 sums[kStreams];
  for (auto& s : sums) s = zero16();
  for (int64_t i = 0; i < each; i += 2 * kLanes) {
#pragma GCC unroll 8
    for (int s = 0; s < kStreams; ++s) {
      const float* p = data + s * each + i;
      fetch(p + 32 * kLanes);
      fetch(p + 33 * kLanes);
      sums[s] = add(sums[s], add(load16(p), load16(p + kLanes)));
    }
  }
  F32x16 all = sums[0];
  for (int s = 1; s < kStreams; ++s) all = add(all, sums[s]);
  return sum_lanes(all);
}

float multiply_add(int64_t steps) {
  // 12 vectors of 16 lanes: on AVX2 the 12 pairs do not all stay in registers, so half of them run at a time.
#if defined(KVARENA_SIMD_AVX512)
  constexpr int kAtATime = 12;
#else
  constexpr int kAtATime = 6;
#endif
  const F32x16 a = set16(0.999f), b = set16(0.5f);
  F32x16 all = zero16();
  for (int half = 0; half < 12; half += kAtATime) {
    F32x16 acc[kAtATime];
    for (int i = 0; i < kAtATime; ++i) acc[i] = set16(static_cast<float>(i));
    for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 12
      for (int i = 0; i < kAtATime; ++i) acc[i] = fma(acc[i], a, b);
    }
    for (int i = 0; i < kAtATime; ++i) all = add(all, acc[i]);
  }
  return sum_lanes(all);
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const LimitsTable limits_table;
const LimitsTable limits_table = {read, multiply_add};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
