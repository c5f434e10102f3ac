#pragma once
// Internal: one page's bounds and one query row's score of one page.

#include "kernels/common/dispatch.h"
#include "kernels/page_bounds/page_bounds.h"

namespace kvarena::kernels {

struct PageBoundsTable {
  void (*bound_page)(DType dtype, int64_t head_dim, const void* cell, int64_t entries, float* low, float* high);
  void (*score_pages)(const float* q, const PageBounds& bounds, int64_t pages, int64_t head_dim, float* scores);
};
KVARENA_DECLARE_TABLE(PageBoundsTable, page_bounds_table);

extern const PageBoundsTable page_bounds_reference;

}  // namespace kvarena::kernels
