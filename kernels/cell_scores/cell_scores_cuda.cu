// A thread has some neighbouring entries of a cell and takes their channels one by one, as a lane of the host does.
#include <algorithm>

#include "kernels/cell_scores/cell_scores_cuda.h"
#include "kernels/common/parallel.h"
#include "kernels/cuda/numbers.cuh"

namespace kvarena::kernels {
namespace {

constexpr int kThreads = 128, kRows = 4;

/// kRows rows from `first` with the entries of a thread; the rows are in shared memory, [channels][kRows].
template <class T>
__device__ void score_entries(const CellScoring& work, const float* q, int64_t first) {
  constexpr int kWidth = kVector<T>;
  const int64_t entry = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  if (entry >= work.entries) return;
  const int channels = static_cast<int>(work.keys.head_dim);
  const auto* keys =
      static_cast<const typename T::Stored*>(work.keys.data) + entry / kCell * kCell * channels + entry % kCell;
  float sums[kRows][kWidth];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[r][i] = 0;
  }
#pragma unroll 4
  for (int c = 0; c < channels; ++c) {
    float x[kWidth];
    load_vector<T>(keys + c * kCell, x);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float factor = q[c * kRows + r];
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sums[r][i] = fmaf(factor, x[i], sums[r][i]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (first + r >= work.rows) return;
    float* scores = work.scores + (first + r) * work.score_stride + entry;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if (entry + i < work.entries) scores[i] = sums[r][i];
    }
  }
}

/// Grid: blocks of entries, items.
__global__ void __launch_bounds__(kThreads) cell_scores_kernel(const CellScoring* items) {
  const CellScoring& work = items[blockIdx.y];
  auto* q = shared_memory<float>();
  const int64_t channels = work.keys.head_dim;
  for (int64_t first = 0; first < work.rows; first += kRows) {
    for (int64_t i = threadIdx.x; i < kRows * channels; i += kThreads) {
      const int64_t row = first + i % kRows;
      q[i] = row < work.rows ? work.q[row * work.q_stride + i / kRows] : 0.0f;
    }
    __syncthreads();
    switch (work.keys.dtype) {
      case DType::f32: score_entries<F32>(work, q, first); break;
      case DType::f16: score_entries<F16>(work, q, first); break;
      case DType::bf16: score_entries<BF16>(work, q, first); break;
    }
    __syncthreads();
  }
}

}  // namespace

void cell_scores_cuda(std::span<const CellScoring> items, CudaScratch& scratch, CudaStream stream) {
  int64_t blocks = 0, channels = 0;
  for (const CellScoring& item : items) {
    require(item.keys.kind == CellKind::keys && item.keys.head_dim > 0, "cell_scores: cells of keys");
    const int64_t per_block = kThreads * 16 / size_of(item.keys.dtype);
    blocks = std::max<int64_t>(blocks, blocks_for(item.entries, per_block));
    channels = std::max(channels, item.keys.head_dim);
  }
  launch_items(cell_scores_kernel, items, blocks, kThreads, kRows * channels * 4, scratch, stream);
}

}  // namespace kvarena::kernels
