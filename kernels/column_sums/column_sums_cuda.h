#pragma once
// column_sums.h on a CUDA device. Arguments as there, with q, lse, sums and what the runs point to on the device (see
// attention_cuda.h); everything is queued on `stream`.
//
// Scores have the bits of attention_cuda.h; query by query is added in float32, so a prompt handed over in pieces has
// the bits of one call. One block has 128 list positions of one query head; keys are read once per 8 tokens, from the
// cache.

#include "kernels/column_sums/column_sums.h"
#include "kernels/cuda/device.h"

namespace kvarena::kernels {

void column_sums_cuda(const ColumnSumsArgs& args, CudaScratch& scratch, CudaStream stream);

}  // namespace kvarena::kernels
