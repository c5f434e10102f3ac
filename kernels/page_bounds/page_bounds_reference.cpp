#include <algorithm>

#include "kernels/page_bounds/page_bounds_paths.h"

namespace kvarena::kernels {
namespace {

void bound_page(DType dtype, int64_t head_dim, const void* cell, int64_t entries, float* low, float* high) {
  for (int64_t c = 0; c < head_dim; ++c) {
    low[c] = high[c] = load_element(cell, dtype, c * kCell);
    for (int64_t e = 1; e < entries; ++e) {
      const float x = load_element(cell, dtype, c * kCell + e);
      low[c] = std::min(low[c], x);
      high[c] = std::max(high[c], x);
    }
  }
}

void score_pages(const float* q, const PageBounds& bounds, int64_t pages, int64_t head_dim, float* scores) {
  for (int64_t p = 0; p < pages; ++p) {
    double sum = 0;
    for (int64_t c = 0; c < head_dim; ++c) {
      const double a = static_cast<double>(q[c]) * bounds.low[p * head_dim + c];
      const double b = static_cast<double>(q[c]) * bounds.high[p * head_dim + c];
      sum += std::max(a, b);
    }
    scores[p] = static_cast<float>(sum);
  }
}

}  // namespace

const PageBoundsTable page_bounds_reference = {bound_page, score_pages};

}  // namespace kvarena::kernels
