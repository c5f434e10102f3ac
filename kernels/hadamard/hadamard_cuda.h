#pragma once
// hadamard.h on a CUDA device, with the bits of its SIMD paths.

#include "kernels/cuda/device.h"

namespace kvarena::kernels {

/// Rows [rows, n] on the device in place; n a power of two, at most 32768. Queued on `stream`.
void hadamard_cuda(float* x, int64_t rows, int64_t n, int64_t stride, CudaStream stream);

}  // namespace kvarena::kernels
