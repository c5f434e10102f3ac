#pragma once
// cell_scores.h on a CUDA device: q, keys (at multiples of 16 bytes) and scores lie there; queued on `stream`.
// Products are in floats, in the order of attention_cuda.h for f32 cells; keys are read once per 4 rows.

#include "kernels/cells/cells.h"
#include "kernels/cuda/device.h"

namespace kvarena::kernels {

void cell_scores_cuda(const float* q, int64_t rows, int64_t q_stride, const Cells& keys, int64_t entries, float* scores,
                      int64_t score_stride, CudaStream stream);

}  // namespace kvarena::kernels
