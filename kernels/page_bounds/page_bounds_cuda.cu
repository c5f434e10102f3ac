#include <algorithm>

#include "kernels/common/parallel.h"
#include "kernels/cuda/numbers.cuh"
#include "kernels/page_bounds/page_bounds_cuda.h"

namespace kvarena::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / static_cast<int>(kWarp);

template <class T>
__device__ void bound_page(const BoundsUpdate& update, int64_t page) {
  const int64_t head_dim = update.keys.head_dim, left = update.entries - page * kCell;
  const int present = static_cast<int>(left < kCell ? left : kCell);
  for (int64_t c = threadIdx.x; c < head_dim; c += kThreads) {
    const auto* channel = static_cast<const typename T::Stored*>(update.keys.data) + (page * head_dim + c) * kCell;
    float low = T::widen(channel[0]), high = low;
    for (int e = 1; e < present; ++e) {
      const float x = T::widen(channel[e]);
      low = fminf(low, x);
      high = fmaxf(high, x);
    }
    update.bounds.low[page * head_dim + c] = low;
    update.bounds.high[page * head_dim + c] = high;
  }
}

/// Grid: pages, items. A thread has a channel.
__global__ void __launch_bounds__(kThreads) bounds_kernel(const BoundsUpdate* items) {
  const BoundsUpdate& update = items[blockIdx.y];
  const int64_t page = update.first / kCell + blockIdx.x;
  if (page * kCell >= update.entries) return;
  switch (update.keys.dtype) {
    case DType::f32: return bound_page<F32>(update, page);
    case DType::f16: return bound_page<F16>(update, page);
    case DType::bf16: return bound_page<BF16>(update, page);
  }
}

/// Grid: blocks of kWarps pages, items. A warp has a page.
__global__ void __launch_bounds__(kThreads) page_scores_kernel(const PageScoring* items) {
  const PageScoring& work = items[blockIdx.y];
  const int64_t page = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (page >= work.pages) return;
  const float* low = work.bounds.low + page * work.head_dim;
  const float* high = work.bounds.high + page * work.head_dim;
  for (int64_t row = 0; row < work.rows; ++row) {
    float sum = 0;
    for (int64_t c = threadIdx.x % kWarp; c < work.head_dim; c += kWarp) {
      const float x = work.q[row * work.q_stride + c];
      sum += fmaxf(x * low[c], x * high[c]);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % kWarp == 0) work.scores[row * work.score_stride + page] = sum;
  }
}

}  // namespace

void update_page_bounds_cuda(std::span<const BoundsUpdate> items, CudaScratch& scratch, CudaStream stream) {
  int64_t pages = 0;
  for (const BoundsUpdate& item : items) {
    require(item.keys.kind == CellKind::keys && item.keys.head_dim > 0 && item.keys.head_dim % kCell == 0,
            "update_page_bounds: cells of keys, head_dim a multiple of 16");
    pages = std::max(pages, cells_for(item.entries) - item.first / kCell);
  }
  launch_items(bounds_kernel, items, pages, kThreads, 0, scratch, stream);
}

void page_scores_cuda(std::span<const PageScoring> items, CudaScratch& scratch, CudaStream stream) {
  int64_t pages = 0;
  for (const PageScoring& item : items) {
    require(item.head_dim > 0 && item.head_dim % kCell == 0, "page_scores: head_dim must be a multiple of 16");
    pages = std::max(pages, item.pages);
  }
  launch_items(page_scores_kernel, items, blocks_for(pages, kWarps), kThreads, 0, scratch, stream);
}

}  // namespace kvarena::kernels
