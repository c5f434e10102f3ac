#include "kernels/cuda/numbers.cuh"
#include "kernels/elementwise/elementwise_cuda.h"

namespace kvarena::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / static_cast<int>(kWarp);

/// One row by all threads; y may be x.
__device__ void norm_row(const float* x, const float* weight, float* y, int64_t n, float eps) {
  float squares = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) squares = fmaf(x[i], x[i], squares);
  squares = warp_sum(squares);
  auto* sums = shared_memory<float>();  // [kWarps]
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = squares;
  __syncthreads();
  float total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += sums[w];
  const float factor = 1.0f / sqrtf(total / static_cast<float>(n) + eps);
  for (int64_t i = threadIdx.x; i < n; i += kThreads) y[i] = x[i] * factor * weight[i];
}

/// Grid: rows.
__global__ void __launch_bounds__(kThreads) rms_norm_kernel(RmsNormArgs args) {
  norm_row(args.x + blockIdx.x * args.x_stride, args.weight, args.y + blockIdx.x * args.y_stride, args.n, args.eps);
}

/// Grid: tokens * heads.
__global__ void __launch_bounds__(kThreads) head_norm_kernel(HeadNorm args) {
  float* x = args.x + blockIdx.x / args.heads * args.token_stride + blockIdx.x % args.heads * args.head_stride;
  norm_row(x, args.weight, x, args.n, args.eps);
}

/// Grid: rows.
__global__ void __launch_bounds__(kThreads) silu_mul_kernel(GatedMulArgs args) {
  const float* gate = args.gate + blockIdx.x * args.gate_stride;
  const float* up = args.up + blockIdx.x * args.up_stride;
  float* out = args.out + blockIdx.x * args.out_stride;
  for (int64_t i = threadIdx.x; i < args.n; i += kThreads) {
    const float z = gate[i];
    out[i] = z / (1 + expf(-z)) * up[i];
  }
}

__global__ void __launch_bounds__(kThreads) add_kernel(float* x, const float* y, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) x[i] += y[i];
}

/// Grid: listed rows.
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const float* x, int64_t x_stride, const WeightedRow* rows, int64_t n, float* to) {
  const float* from = x + rows[blockIdx.x].row * x_stride;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) to[blockIdx.x * n + i] = from[i];
}

/// Grid: listed rows.
__global__ void __launch_bounds__(kThreads)
    add_rows_kernel(const float* x, const WeightedRow* rows, int64_t n, float* to, int64_t to_stride) {
  const WeightedRow listed = rows[blockIdx.x];
  float* sum = to + listed.row * to_stride;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) sum[i] += listed.weight * x[blockIdx.x * n + i];
}

/// Grid: rows.
__global__ void __launch_bounds__(kThreads) move_kernel(ChannelMove args) {
  const float* x = args.x + blockIdx.x * args.x_stride;
  float* to = args.to + blockIdx.x * args.to_stride;
  for (int64_t i = threadIdx.x; i < args.n; i += kThreads) to[args.place[i]] = args.factor * x[i];
}

}  // namespace

void rms_norm_cuda(const RmsNormArgs& args, CudaStream stream) {
  launch(rms_norm_kernel, static_cast<unsigned>(args.rows), kThreads, kWarps * 4, stream, args);
}

void head_norm_cuda(const HeadNorm& args, CudaStream stream) {
  launch(head_norm_kernel, static_cast<unsigned>(args.tokens * args.heads), kThreads, kWarps * 4, stream, args);
}

void silu_mul_cuda(const GatedMulArgs& args, CudaStream stream) {
  launch(silu_mul_kernel, static_cast<unsigned>(args.rows), kThreads, 0, stream, args);
}

void add_into_cuda(float* x, const float* y, int64_t count, CudaStream stream) {
  launch(add_kernel, blocks_for(count, kThreads), kThreads, 0, stream, x, y, count);
}

void gather_rows_cuda(const float* x, int64_t x_stride, const WeightedRow* rows, int64_t count, int64_t n, float* to,
                      CudaStream stream) {
  launch(gather_kernel, static_cast<unsigned>(count), kThreads, 0, stream, x, x_stride, rows, n, to);
}

void add_rows_cuda(const float* x, const WeightedRow* rows, int64_t count, int64_t n, float* to, int64_t to_stride,
                   CudaStream stream) {
  launch(add_rows_kernel, static_cast<unsigned>(count), kThreads, 0, stream, x, rows, n, to, to_stride);
}

void move_channels_cuda(const ChannelMove& args, CudaStream stream) {
  launch(move_kernel, static_cast<unsigned>(args.rows), kThreads, 0, stream, args);
}

}  // namespace kvarena::kernels
