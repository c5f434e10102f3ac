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

/// exp16() of the host (common/simd.h) by the same operations.
__device__ float host_exp(float x) {
  constexpr float kLowest = -87.336544f, kHighest = 88.37f;
  if (x < kLowest) return 0;
  if (!(x >= kLowest)) return x;  // NaN
  const float clamped = fminf(kHighest, x);
  const float n = rintf(clamped * 1.44269504f);
  float r = fmaf(n, -0.693359375f, clamped);
  r = fmaf(n, 2.12194440e-4f, r);
  float p = 1.0f / 5040;
  p = fmaf(p, r, 1.0f / 720);
  p = fmaf(p, r, 1.0f / 120);
  p = fmaf(p, r, 1.0f / 24);
  p = fmaf(p, r, 1.0f / 6);
  p = fmaf(p, r, 0.5f);
  p = fmaf(p, r, 1.0f);
  p = fmaf(p, r, 1.0f);
  return __uint_as_float(__float_as_uint(p) + (static_cast<uint32_t>(static_cast<int>(n)) << 23));
}

constexpr int kSoftmaxThreads = 512, kSumLanes = 16, kTile = 4096;

struct SoftmaxRow {
  float powers[2][kTile];
  float warps[kSoftmaxThreads / kWarp];
  float inverse;
};

/// The row's largest number, to all threads.
__device__ float largest_of(const float* x, int64_t n, SoftmaxRow& row) {
  float largest = x[0];
  for (int64_t i = threadIdx.x; i < n; i += kSoftmaxThreads) largest = fmaxf(largest, x[i]);
  largest = warp_max(largest);
  if (threadIdx.x % kWarp == 0) row.warps[threadIdx.x / kWarp] = largest;
  __syncthreads();
  for (const float other : row.warps) largest = fmaxf(largest, other);
  return largest;
}

/// Grid: rows. The first warp adds a tile's powers up, its lanes those that the host's have, while the others compute
/// the next tile's.
__global__ void __launch_bounds__(kSoftmaxThreads) softmax_kernel(float* x, int64_t n, int64_t stride, float scale) {
  SoftmaxRow& row = *shared_memory<SoftmaxRow>();
  x += blockIdx.x * stride;
  const int thread = static_cast<int>(threadIdx.x), warp = static_cast<int>(kWarp);
  const float largest = largest_of(x, n, row);
  float sum = 0;
  const int64_t tiles = (n + kTile - 1) / kTile;
  for (int64_t tile = 0; tile <= tiles; ++tile) {
    if (thread >= warp && tile < tiles) {
      for (int i = thread - warp; i < kTile; i += kSoftmaxThreads - warp) {
        const int64_t at = tile * kTile + i;
        const float power = at < n ? host_exp((x[at] - largest) * scale) : 0.0f;
        row.powers[tile % 2][i] = power;
        if (at < n) x[at] = power;
      }
    } else if (thread < kSumLanes && tile > 0) {
      const float* powers = row.powers[(tile - 1) % 2] + thread;
#pragma unroll 16
      for (int i = 0; i < kTile; i += kSumLanes) sum += powers[i];
    }
    __syncthreads();
  }
  if (thread < warp) {
#pragma unroll
    for (int width = kSumLanes / 2; width > 0; width /= 2) sum += __shfl_xor_sync(kAllLanes, sum, width);
    if (thread == 0) row.inverse = 1.0f / sum;
  }
  __syncthreads();
  for (int64_t i = thread; i < n; i += kSoftmaxThreads) x[i] *= row.inverse;
}

/// Grid: blocks of elements, groups.
__global__ void __launch_bounds__(kThreads) max_rows_kernel(float* x, int64_t rows, int64_t n, int64_t stride) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  x += blockIdx.y * rows * stride + i;
  float largest = x[0];
  for (int64_t row = 1; row < rows; ++row) {
    const float other = x[row * stride];
    largest = largest < other ? other : largest;
  }
  x[0] = largest;
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

void softmax_cuda(float* x, int64_t rows, int64_t n, int64_t stride, float scale, CudaStream stream) {
  launch(softmax_kernel, static_cast<unsigned>(rows), kSoftmaxThreads, static_cast<int64_t>(sizeof(SoftmaxRow)), stream,
         x, n, stride, scale);
}

void max_rows_cuda(float* x, int64_t groups, int64_t rows, int64_t n, int64_t stride, CudaStream stream) {
  launch(max_rows_kernel, dim3(blocks_for(n, kThreads), static_cast<unsigned>(groups)), kThreads, 0, stream, x, rows, n,
         stride);
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
