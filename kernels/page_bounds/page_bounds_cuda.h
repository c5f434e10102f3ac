#pragma once
// page_bounds.h on a CUDA device: keys, queries, bounds and scores lie there; everything is queued on `stream`. Bounds
// have the host's bits; a score's sum runs over 32 lanes (channel modulo 32, ascending) and a fixed tree.

#include "kernels/cuda/device.h"
#include "kernels/page_bounds/page_bounds.h"

namespace kvarena::kernels {

void update_page_bounds_cuda(const Cells& keys, int64_t first, int64_t entries, const PageBounds& bounds,
                             CudaStream stream);

void page_scores_cuda(const float* q, int64_t rows, int64_t q_stride, const PageBounds& bounds, int64_t pages,
                      int64_t head_dim, float* scores, int64_t score_stride, CudaStream stream);

}  // namespace kvarena::kernels
