#include "kernels/attention/entries.cuh"
#include "kernels/cell_scores/cell_scores_cuda.h"
#include "kernels/common/parallel.h"

namespace kvarena::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / static_cast<int>(kWarp), kRows = 4;

/// Grid: blocks of kWarps cells, blocks of kRows rows. A warp has a cell.
template <class T>
__global__ void __launch_bounds__(kThreads)
    cell_scores_kernel(const float* q, int64_t rows, int64_t q_stride, const void* keys, int channels, int64_t entries,
                       float* scores, int64_t score_stride) {
  auto* shared = shared_memory<float>();  // [kRows][channels]
  const int64_t first_row = int64_t{blockIdx.y} * kRows;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * channels; i += kThreads) {
    const int64_t row = first_row + i / channels;
    shared[i] = row < rows ? q[row * q_stride + i % channels] : 0.0f;
  }
  __syncthreads();
  const int64_t cell = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (cell * kCell >= entries) return;
  float products[kRows];
  const int64_t entry =
      cell * kCell + cell_products<kRows>(CellKeys<T>(keys, cell, channels), shared, channels, channels, products);
  if (entry >= entries || (threadIdx.x & kTwinLane<CellKeys<T>>) != 0) return;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (first_row + r < rows) scores[(first_row + r) * score_stride + entry] = products[r];
  }
}

}  // namespace

void cell_scores_cuda(const float* q, int64_t rows, int64_t q_stride, const Cells& keys, int64_t entries, float* scores,
                      int64_t score_stride, CudaStream stream) {
  require(keys.kind == CellKind::keys && keys.head_dim > 0, "cell_scores: cells of keys");
  with_format(keys.dtype, [&](auto format) {
    launch(cell_scores_kernel<decltype(format)>, dim3(blocks_for(cells_for(entries), kWarps), blocks_for(rows, kRows)),
           kThreads, kRows * keys.head_dim * 4, stream, q, rows, q_stride, keys.data, static_cast<int>(keys.head_dim),
           entries, scores, score_stride);
  });
}

}  // namespace kvarena::kernels
