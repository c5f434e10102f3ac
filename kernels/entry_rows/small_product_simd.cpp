#include "kernels/common/simd.h"
#include "kernels/entry_rows/small_product_paths.h"

namespace kvarena::kernels {
namespace {

// Rows side by side, so that sums do not wait for each other: as many as registers hold beside a row of b.
#if defined(KVARENA_SIMD_AVX512)
constexpr int kRows = 8;
#else
constexpr int kRows = 6;
#endif

template <int ROWS>
void add_rows(const SmallProduct& product, int64_t r, int64_t c) {
  const Mask16 lanes = first_lanes(product.columns - c);
  const float* const a = product.a + r * product.rank;
  float* const y = product.y + r * product.y_stride + c;
  F32x16 sums[ROWS];
  for (int i = 0; i < ROWS; ++i) sums[i] = load16(y + i * product.y_stride, lanes);
  for (int64_t k = 0; k < product.rank; ++k) {
    const F32x16 b = load16(product.b + k * product.columns + c, lanes);
    for (int i = 0; i < ROWS; ++i) sums[i] = fma(set16(a[i * product.rank + k]), b, sums[i]);
  }
  for (int i = 0; i < ROWS; ++i) store16(y + i * product.y_stride, sums[i], lanes);
}

void add(const SmallProduct& product) {
  for (int64_t c = 0; c < product.columns; c += kLanes) {
    int64_t r = 0;
    for (; r + kRows <= product.rows; r += kRows) add_rows<kRows>(product, r, c);
    for (; r < product.rows; ++r) add_rows<1>(product, r, c);
  }
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const SmallProductTable small_product_table;
const SmallProductTable small_product_table = {add};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
