#include "kernels/common/parallel.h"
#include "kernels/cuda/numbers.cuh"
#include "kernels/rope/rope_cuda.h"

namespace kvarena::kernels {
namespace {

constexpr int kThreads = 256;

struct Pair {
  float a, b;
};
__device__ __forceinline__ Pair turned(Pair x, float cos, float sin) {
  return {fmaf(0 - x.b, sin, x.a * cos), fmaf(x.a, sin, x.b * cos)};
}

/// Grid: blocks over heads * half, tokens.
__global__ void __launch_bounds__(kThreads) rotate_kernel(RotateArgs args) {
  const int64_t half = args.rotary / 2, token = blockIdx.y, i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= args.heads * half) return;
  float* x = args.x + token * args.token_stride + i / half * args.head_stride + i % half;
  const int64_t at = token * half + i % half;
  const Pair pair = turned({x[0], x[half]}, args.cos[at], args.sin[at]);
  x[0] = pair.a;
  x[half] = pair.b;
}

/// Grid: cells. Threads in the order of the cell in memory: 16 entries of a channel side by side.
template <class T>
__global__ void __launch_bounds__(kThreads)
    rotate_cells_kernel(typename T::Stored* keys, int64_t head_dim, int64_t entry, int64_t count, const float* cos,
                        const float* sin, int64_t half, int64_t table_stride) {
  const int64_t cell = entry / kCell + blockIdx.x;
  typename T::Stored* stored = keys + cell * kCell * head_dim;
  for (int64_t i = threadIdx.x; i < half * kCell; i += kThreads) {
    const int64_t row = cell * kCell + i % kCell - entry, channel = i / kCell;
    if (row < 0 || row >= count) continue;
    const int64_t at = row * table_stride + channel;
    const Pair pair = turned({T::widen(stored[i]), T::widen(stored[i + half * kCell])}, cos[at], sin[at]);
    stored[i] = T::narrow(pair.a);
    stored[i + half * kCell] = T::narrow(pair.b);
  }
}

}  // namespace

void rotate_cuda(const RotateArgs& args, CudaStream stream) {
  require(args.rotary % 2 == 0 && args.rotary <= args.head_dim, "rotate: rotary must be even and at most head_dim");
  constexpr int64_t kMostTokens = 65535;  // of a grid
  RotateArgs part = args;
  for (int64_t token = 0; token < args.tokens; token += kMostTokens) {
    part.tokens = args.tokens - token < kMostTokens ? args.tokens - token : kMostTokens;
    part.x = args.x + token * args.token_stride;
    part.cos = args.cos + token * (args.rotary / 2);
    part.sin = args.sin + token * (args.rotary / 2);
    launch(rotate_kernel, dim3(blocks_for(args.heads * args.rotary / 2, kThreads), static_cast<unsigned>(part.tokens)),
           kThreads, 0, stream, part);
  }
}

void rotate_cells_cuda(const Cells& keys, int64_t entry, int64_t count, const float* cos, const float* sin,
                       int64_t half, int64_t table_stride, CudaStream stream) {
  require(keys.kind == CellKind::keys && 2 * half <= keys.head_dim, "rotate_cells: keys only, rotary at most head_dim");
  if (count <= 0) return;
  const int64_t cells = (entry + count - 1) / kCell - entry / kCell + 1;
  with_format(keys.dtype, [&](auto format) {
    using T = decltype(format);
    launch(rotate_cells_kernel<T>, static_cast<unsigned>(cells), kThreads, 0, stream,
           static_cast<typename T::Stored*>(keys.data), keys.head_dim, entry, count, cos, sin, half, table_stride);
  });
}

}  // namespace kvarena::kernels
