#pragma once
// rope.h on a CUDA device, with the bits of its SIMD paths. x, keys, cos and sin lie on the device; everything is
// queued on `stream`.

#include <span>

#include "kernels/cuda/device.h"
#include "kernels/rope/rope.h"

namespace kvarena::kernels {

void rotate_cuda(const RotateArgs& args, CudaStream stream);

/// rotate_cells() of one head.
struct CellRotation {
  Cells keys;
  int64_t entry = 0, count = 0;
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t half = 0, table_stride = 0;
};
/// Handles many heads in one call.
void rotate_cells_cuda(std::span<const CellRotation> items, CudaScratch& scratch, CudaStream stream);

}  // namespace kvarena::kernels
