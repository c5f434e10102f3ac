#include "kernels/page_bounds/page_bounds.h"

#include "kernels/common/parallel.h"
#include "kernels/page_bounds/page_bounds_paths.h"

namespace kvarena::kernels {
namespace {

constexpr int64_t kWorthThreads = 256;  // pages

const PageBoundsTable& table() {
  const PageBoundsTable* fast = KVARENA_ACTIVE_TABLE(page_bounds_table);
  return fast != nullptr ? *fast : page_bounds_reference;
}

}  // namespace

void update_page_bounds(const Cells& keys, int64_t first, int64_t entries, const PageBounds& bounds) {
  require(keys.kind == CellKind::keys && keys.head_dim > 0 && keys.head_dim % kCell == 0,
          "update_page_bounds: cells of keys, head_dim a multiple of 16");
  const PageBoundsTable& use = table();
  const int64_t begin = first / kCell, pages = cells_for(entries) - begin;
  const auto one = [&](int64_t i) {
    const int64_t page = begin + i, present = std::min(kCell, entries - page * kCell);
    const void* cell = static_cast<const char*>(keys.data) + page * cell_bytes(kCell, keys.head_dim, keys.dtype);
    use.bound_page(keys.dtype, keys.head_dim, cell, present, bounds.low + page * keys.head_dim,
                   bounds.high + page * keys.head_dim);
  };
  if (pages >= kWorthThreads) return parallel_for(pages, one);
  for (int64_t i = 0; i < pages; ++i) one(i);
}

void page_scores(const float* q, int64_t rows, int64_t q_stride, const PageBounds& bounds, int64_t pages,
                 int64_t head_dim, float* scores, int64_t score_stride) {
  require(head_dim > 0 && head_dim % kCell == 0, "page_scores: head_dim must be a multiple of 16");
  const PageBoundsTable& use = table();
  const auto one = [&](int64_t r) {
    use.score_pages(q + r * q_stride, bounds, pages, head_dim, scores + r * score_stride);
  };
  if (pages * rows >= kWorthThreads * 4) return parallel_for(rows, one);
  for (int64_t r = 0; r < rows; ++r) one(r);
}

}  // namespace kvarena::kernels
