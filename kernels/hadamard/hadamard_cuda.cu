#include "kernels/common/parallel.h"
#include "kernels/cuda/runtime.cuh"
#include "kernels/hadamard/hadamard_cuda.h"

namespace kvarena::kernels {
namespace {

constexpr int kMostThreads = 256;

/// Grid: rows, each in shared memory.
__global__ void __launch_bounds__(kMostThreads) hadamard_kernel(float* x, int n, int64_t stride) {
  auto* row = shared_memory<float>();
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  x += blockIdx.x * stride;
  for (int i = thread; i < n; i += threads) row[i] = x[i];
  for (int step = 1; step < n; step *= 2) {
    __syncthreads();
    for (int i = thread; i < n / 2; i += threads) {
      const int at = i / step * 2 * step + i % step;
      const float a = row[at], b = row[at + step];
      row[at] = a + b;
      row[at + step] = a - b;
    }
  }
  __syncthreads();
  const float factor = 1 / sqrtf(static_cast<float>(n));
  for (int i = thread; i < n; i += threads) x[i] = row[i] * factor;
}

}  // namespace

void hadamard_cuda(float* x, int64_t rows, int64_t n, int64_t stride, CudaStream stream) {
  require(n > 0 && (n & (n - 1)) == 0 && n <= 32768, "hadamard: n must be a power of two and at most 32768");
  const int64_t threads = n / 2 < 32 ? 32 : n / 2 > kMostThreads ? kMostThreads : n / 2;
  launch(hadamard_kernel, static_cast<unsigned>(rows), static_cast<unsigned>(threads), 4 * n, stream, x,
         static_cast<int>(n), stride);
}

}  // namespace kvarena::kernels
