#include <algorithm>

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

/// Threads in the order of the cell in memory: 16 entries of a channel side by side.
template <class T>
__device__ void rotate_cell(const CellRotation& turn, int64_t cell) {
  auto* stored = static_cast<typename T::Stored*>(turn.keys.data) + cell * kCell * turn.keys.head_dim;
  for (int64_t i = threadIdx.x; i < turn.half * kCell; i += kThreads) {
    const int64_t row = cell * kCell + i % kCell - turn.entry, at = row * turn.table_stride + i / kCell;
    if (row < 0 || row >= turn.count) continue;
    const Pair pair =
        turned({T::widen(stored[i]), T::widen(stored[i + turn.half * kCell])}, turn.cos[at], turn.sin[at]);
    stored[i] = T::narrow(pair.a);
    stored[i + turn.half * kCell] = T::narrow(pair.b);
  }
}

/// Grid: cells, items.
__global__ void __launch_bounds__(kThreads) rotate_cells_kernel(const CellRotation* items) {
  const CellRotation& turn = items[blockIdx.y];
  const int64_t cell = turn.entry / kCell + blockIdx.x;
  if (cell * kCell >= turn.entry + turn.count) return;
  switch (turn.keys.dtype) {
    case DType::f32: return rotate_cell<F32>(turn, cell);
    case DType::f16: return rotate_cell<F16>(turn, cell);
    case DType::bf16: return rotate_cell<BF16>(turn, cell);
  }
}

}  // namespace

void rotate_cuda(const RotateArgs& args, CudaStream stream) {
  require(args.rotary % 2 == 0 && args.rotary <= args.head_dim, "rotate: rotary must be even and at most head_dim");
  constexpr int64_t kMostTokens = 65535;  // limit of a grid
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

void rotate_cells_cuda(std::span<const CellRotation> items, CudaScratch& scratch, CudaStream stream) {
  int64_t cells = 0;
  for (const CellRotation& item : items) {
    require(item.keys.kind == CellKind::keys && 2 * item.half <= item.keys.head_dim,
            "rotate_cells: keys only, rotary at most head_dim");
    if (item.count > 0) cells = std::max(cells, (item.entry + item.count - 1) / kCell - item.entry / kCell + 1);
  }
  launch_items(rotate_cells_kernel, items, cells, kThreads, 0, scratch, stream);
}

}  // namespace kvarena::kernels
