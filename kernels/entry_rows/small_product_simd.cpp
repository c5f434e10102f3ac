#include "kernels/common/simd.h"
#include "kernels/entry_rows/small_product_paths.h"

namespace kvarena::kernels {
namespace {

// Rows and sixteens of columns side by side, so that sums do not wait for each other and what is loaded serves many:
// as many as registers hold beside rows of b.
#if defined(KVARENA_SIMD_AVX512)
constexpr int kRows = 8, kColumns = 2;
#else
constexpr int kRows = 6, kColumns = 1;
#endif

template <int ROWS, int COLUMNS>
void add_tile(const SmallProduct& product, int64_t r, int64_t c) {
  const Mask16 last = first_lanes(product.columns - c - (COLUMNS - 1) * kLanes), all = first_lanes(kLanes);
  const auto lanes = [&](int j) { return j + 1 == COLUMNS ? last : all; };
  const float* a = product.a + r * product.a_row_stride;
  float* const y = product.y + r * product.y_stride + c;
  F32x16 sums[ROWS][COLUMNS];
  for (int i = 0; i < ROWS; ++i) {
    for (int j = 0; j < COLUMNS; ++j) sums[i][j] = load16(y + i * product.y_stride + j * kLanes, lanes(j));
  }
  const float* b = product.b + c;
  for (int64_t k = 0; k < product.rank; ++k, a += product.a_stride, b += product.columns) {
    F32x16 row[COLUMNS];
    for (int j = 0; j < COLUMNS; ++j) row[j] = load16(b + j * kLanes, lanes(j));
    for (int i = 0; i < ROWS; ++i) {
      const F32x16 x = set16(a[i * product.a_row_stride]);
      for (int j = 0; j < COLUMNS; ++j) sums[i][j] = fma(x, row[j], sums[i][j]);
    }
  }
  for (int i = 0; i < ROWS; ++i) {
    for (int j = 0; j < COLUMNS; ++j) store16(y + i * product.y_stride + j * kLanes, sums[i][j], lanes(j));
  }
}

template <int COLUMNS>
void add_columns(const SmallProduct& product, int64_t c) {
  int64_t r = 0;
  for (; r + kRows <= product.rows; r += kRows) add_tile<kRows, COLUMNS>(product, r, c);
  for (; r < product.rows; ++r) add_tile<1, COLUMNS>(product, r, c);
}

void add(const SmallProduct& product) {
  int64_t c = 0;
  for (; product.columns - c > (kColumns - 1) * kLanes; c += kColumns * kLanes) add_columns<kColumns>(product, c);
  for (; c < product.columns; c += kLanes) add_columns<1>(product, c);
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const SmallProductTable small_product_table;
const SmallProductTable small_product_table = {add};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
