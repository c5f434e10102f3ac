#include "kernels/entry_rows/small_product.h"

#include "kernels/entry_rows/small_product_paths.h"

namespace kvarena::kernels {

void add_product(const SmallProduct& product) {
  const SmallProductTable* fast = KVARENA_ACTIVE_TABLE(small_product_table);
  (fast != nullptr ? fast->add_product : add_product_reference)(product);
}

}  // namespace kvarena::kernels
