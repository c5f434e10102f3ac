#pragma once
// cell_scores.h on a CUDA device: q, keys (at multiples of 16 bytes) and scores lie there; queued on `stream`. Bits are
// those of cell_scores.h; keys are read once per 4 rows.

#include <span>

#include "kernels/cells/cells.h"
#include "kernels/cuda/device.h"

namespace kvarena::kernels {

/// cell_scores() of one head.
struct CellScoring {
  const float* q = nullptr;
  int64_t rows = 0, q_stride = 0;
  Cells keys;
  int64_t entries = 0;
  float* scores = nullptr;
  int64_t score_stride = 0;
};
/// Handles many heads in one call.
void cell_scores_cuda(std::span<const CellScoring> items, CudaScratch& scratch, CudaStream stream);

}  // namespace kvarena::kernels
