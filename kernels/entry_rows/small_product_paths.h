#pragma once
// Internal: the paths of add_product().

#include "kernels/common/dispatch.h"
#include "kernels/entry_rows/small_product.h"

namespace kvarena::kernels {

struct SmallProductTable {
  void (*add_product)(const SmallProduct& product);
};
KVARENA_DECLARE_TABLE(SmallProductTable, small_product_table);

void add_product_reference(const SmallProduct& product);

}  // namespace kvarena::kernels
