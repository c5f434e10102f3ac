#include <algorithm>

#include "kernels/attention/entries.cuh"
#include "kernels/cell_scores/cell_scores_cuda.h"
#include "kernels/common/parallel.h"

namespace kvarena::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / static_cast<int>(kWarp), kRows = 4;

/// kRows rows from `first` with one cell, by a warp; the rows are in shared memory.
template <class T>
__device__ void score_cell(const CellScoring& work, const float* q, int64_t first, int64_t cell) {
  const int channels = static_cast<int>(work.keys.head_dim);
  float products[kRows];
  const CellKeys<T> keys(work.keys.data, cell, channels);
  const int64_t entry = cell * kCell + cell_products<kRows>(keys, q, channels, channels, products);
  if (entry >= work.entries || (threadIdx.x & kTwinLane<CellKeys<T>>) != 0) return;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (first + r < work.rows) work.scores[(first + r) * work.score_stride + entry] = products[r];
  }
}

/// Grid: blocks of kWarps cells, items. A warp has a cell.
__global__ void __launch_bounds__(kThreads) cell_scores_kernel(const CellScoring* items) {
  const CellScoring& work = items[blockIdx.y];
  auto* q = shared_memory<float>();  // [kRows][channels]
  const int64_t cell = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp, channels = work.keys.head_dim;
  if (int64_t{blockIdx.x} * kWarps * kCell >= work.entries) return;
  for (int64_t first = 0; first < work.rows; first += kRows) {
    for (int64_t i = threadIdx.x; i < kRows * channels; i += kThreads) {
      const int64_t row = first + i / channels;
      q[i] = row < work.rows ? work.q[row * work.q_stride + i % channels] : 0.0f;
    }
    __syncthreads();
    if (cell * kCell < work.entries) {
      switch (work.keys.dtype) {
        case DType::f32: score_cell<F32>(work, q, first, cell); break;
        case DType::f16: score_cell<F16>(work, q, first, cell); break;
        case DType::bf16: score_cell<BF16>(work, q, first, cell); break;
      }
    }
    __syncthreads();
  }
}

}  // namespace

void cell_scores_cuda(std::span<const CellScoring> items, CudaScratch& scratch, CudaStream stream) {
  int64_t entries = 0, channels = 0;
  for (const CellScoring& item : items) {
    require(item.keys.kind == CellKind::keys && item.keys.head_dim > 0, "cell_scores: cells of keys");
    entries = std::max(entries, item.entries);
    channels = std::max(channels, item.keys.head_dim);
  }
  launch_items(cell_scores_kernel, items, blocks_for(cells_for(entries), kWarps), kThreads, kRows * channels * 4,
               scratch, stream);
}

}  // namespace kvarena::kernels
