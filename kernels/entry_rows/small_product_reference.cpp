#include "kernels/entry_rows/small_product_paths.h"

namespace kvarena::kernels {

void add_product_reference(const SmallProduct& product) {
  for (int64_t r = 0; r < product.rows; ++r) {
    for (int64_t c = 0; c < product.columns; ++c) {
      float& y = product.y[r * product.y_stride + c];
      for (int64_t k = 0; k < product.rank; ++k)
        y += product.a[r * product.a_row_stride + k * product.a_stride] * product.b[k * product.columns + c];
    }
  }
}

}  // namespace kvarena::kernels
