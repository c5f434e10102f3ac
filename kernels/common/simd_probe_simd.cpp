#include "kernels/common/simd.h"

#include "kernels/common/simd_probe.h"

namespace kvarena::kernels {
namespace {

void exp_array(const float* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; i += kLanes) store16(y + i, exp16(load16(x + i)));
}

void convert_array(const float* x, int64_t count, int dtype, void* stored, float* back) {
  with_format(dtype, [&](auto format) {
    auto* cells = static_cast<typename decltype(format)::Stored*>(stored);
    for (int64_t i = 0; i < count; i += kLanes) {
      store16(format, cells + i, load16(x + i));
      store16(back + i, load16(format, cells + i));
    }
  });
}

float sum_array(const float* x) { return sum_lanes(load16(x)); }
float max_array(const float* x) { return max_lanes(load16(x)); }

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const SimdProbeTable simd_probe;
const SimdProbeTable simd_probe = {exp_array, convert_array, sum_array, max_array};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
