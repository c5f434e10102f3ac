#include "kernels/common/simd.h"
#include "kernels/page_bounds/page_bounds_paths.h"

namespace kvarena::kernels {
namespace {

void bound_page(DType dtype, int64_t head_dim, const void* cell, int64_t entries, float* low, float* high) {
  const Mask16 present = first_lanes(entries);
  const F32x16 infinity = set16(__builtin_inff()), minus = set16(-__builtin_inff());
  with_format(static_cast<int>(dtype), [&](auto format) {
    const auto* stored = static_cast<const typename decltype(format)::Stored*>(cell);
    for (int64_t c = 0; c < head_dim; ++c) {
      const F32x16 x = load16(format, stored + c * kLanes);
      high[c] = max_lanes(select(present, x, minus));
      low[c] = -max_lanes(sub(zero16(), select(present, x, infinity)));
    }
  });
}

void score_pages(const float* q, const PageBounds& bounds, int64_t pages, int64_t head_dim, float* scores) {
  for (int64_t p = 0; p < pages; ++p) {
    const float* low = bounds.low + p * head_dim;
    const float* high = bounds.high + p * head_dim;
    F32x16 sum = zero16();
    for (int64_t c = 0; c < head_dim; c += kLanes) {
      const F32x16 x = load16(q + c);
      sum = add(sum, max(mul(x, load16(low + c)), mul(x, load16(high + c))));
    }
    scores[p] = sum_lanes(sum);
  }
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const PageBoundsTable page_bounds_table;
const PageBoundsTable page_bounds_table = {bound_page, score_pages};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
