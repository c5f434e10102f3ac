#pragma once
// Smallest and largest key of every page of 16 entries (a cell), channel by channel, and the upper bound on a query's
// scores that follows (Tang et al., Quest, arXiv 2406.10774).
//
// One kv head: low, high [pages][head_dim] in float32 (row p at p * head_dim). Values come from the stored (rounded)
// keys, so bound(q, page) >= q . k for every key in the page up to rounding.

#include <cstdint>

#include "kernels/cells/cells.h"

namespace kvarena::kernels {

struct PageBounds {
  float* low = nullptr;   // [pages][head_dim]
  float* high = nullptr;  // [pages][head_dim]
};

/// Recomputes the bounds of the pages that hold entries first .. entries-1; call it after appending from `first` on.
/// A page that entries ends in takes only the entries present. Cost: the keys of those pages, once.
void update_page_bounds(const Cells& keys, int64_t first, int64_t entries, const PageBounds& bounds);

/// scores[r * score_stride + p] = sum over channels c of max(q[r][c] * low[p][c], q[r][c] * high[p][c]) for query rows
/// r (q row r at q + r * q_stride) and pages 0 .. pages-1. Sum by 16 lanes (channel modulo 16, ascending) and a fixed
/// tree. No scale is applied.
void page_scores(const float* q, int64_t rows, int64_t q_stride, const PageBounds& bounds, int64_t pages,
                 int64_t head_dim, float* scores, int64_t score_stride);

}  // namespace kvarena::kernels
