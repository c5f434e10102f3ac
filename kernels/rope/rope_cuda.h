#pragma once
// rope.h on a CUDA device, with the bits of its SIMD paths. x, keys, cos and sin lie on the device; everything is
// queued on `stream`.

#include "kernels/cuda/device.h"
#include "kernels/rope/rope.h"

namespace kvarena::kernels {

void rotate_cuda(const RotateArgs& args, CudaStream stream);

void rotate_cells_cuda(const Cells& keys, int64_t entry, int64_t count, const float* cos, const float* sin,
                       int64_t half, int64_t table_stride, CudaStream stream);

}  // namespace kvarena::kernels
