#include "kernels/common/simd.h"
#include "kernels/entry_rows/small_product_paths.h"

namespace kvarena::kernels {
namespace {

void add(const SmallProduct& product) {
  for (int64_t c = 0; c < product.columns; c += kLanes) {
    const Mask16 lanes = first_lanes(product.columns - c);
    for (int64_t r = 0; r < product.rows; ++r) {
      const float* const a = product.a + r * product.rank;
      float* const y = product.y + r * product.y_stride + c;
      F32x16 sum = load16(y, lanes);
      for (int64_t k = 0; k < product.rank; ++k) {
        sum = fma(set16(a[k]), load16(product.b + k * product.columns + c, lanes), sum);
      }
      store16(y, sum, lanes);
    }
  }
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const SmallProductTable small_product_table;
const SmallProductTable small_product_table = {add};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
