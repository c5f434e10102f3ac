#pragma once
// elementwise.h on a CUDA device: all pointers lie there; everything is queued on `stream`. A row's bits depend on that
// row alone (and differ from the host's within rounding: the sum of rms_norm runs over 256 lanes and a fixed tree).

#include "kernels/cuda/device.h"
#include "kernels/elementwise/elementwise.h"

namespace kvarena::kernels {

void rms_norm_cuda(const RmsNormArgs& args, CudaStream stream);
/// rms_norm() of every head of some tokens, in place.
struct HeadNorm {
  float* x = nullptr;             // [tokens, heads, n]
  const float* weight = nullptr;  // [n]
  int64_t tokens = 0, heads = 0, n = 0;
  int64_t token_stride = 0, head_stride = 0;  // in elements
  float eps = 1e-5f;
};
void head_norm_cuda(const HeadNorm& args, CudaStream stream);

void silu_mul_cuda(const SiluMulArgs& args, CudaStream stream);
void add_into_cuda(float* x, const float* y, int64_t count, CudaStream stream);

}  // namespace kvarena::kernels
