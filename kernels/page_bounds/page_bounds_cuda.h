#pragma once
// page_bounds.h on a CUDA device: keys, queries, bounds and scores lie there; everything is queued on `stream`. Bounds
// have the host's bits; a score's sum runs over 32 lanes (channel modulo 32, ascending) and a fixed tree.

#include <span>

#include "kernels/cuda/device.h"
#include "kernels/page_bounds/page_bounds.h"

namespace kvarena::kernels {

/// update_page_bounds() of one head.
struct BoundsUpdate {
  Cells keys;
  int64_t first = 0, entries = 0;
  PageBounds bounds;
};
/// Handles many heads in one call.
void update_page_bounds_cuda(std::span<const BoundsUpdate> items, CudaScratch& scratch, CudaStream stream);

/// page_scores() of one head.
struct PageScoring {
  const float* q = nullptr;  // [rows], row r at q + r * q_stride
  int64_t rows = 0, q_stride = 0;
  PageBounds bounds;
  int64_t pages = 0, head_dim = 0;
  float* scores = nullptr;  // [rows, pages]
  int64_t score_stride = 0;
};
/// Handles many heads in one call.
void page_scores_cuda(std::span<const PageScoring> items, CudaScratch& scratch, CudaStream stream);

}  // namespace kvarena::kernels
