#include "kernels/common/parallel.h"
#include "kernels/cuda/numbers.cuh"
#include "kernels/page_bounds/page_bounds_cuda.h"

namespace kvarena::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / static_cast<int>(kWarp);

/// Grid: pages. A thread has a channel.
template <class T>
__global__ void __launch_bounds__(kThreads) bounds_kernel(const typename T::Stored* keys, int64_t head_dim,
                                                          int64_t first_page, int64_t entries, PageBounds bounds) {
  const int64_t page = first_page + blockIdx.x, left = entries - page * kCell;
  const int present = static_cast<int>(left < kCell ? left : kCell);
  for (int64_t c = threadIdx.x; c < head_dim; c += kThreads) {
    const typename T::Stored* channel = keys + (page * head_dim + c) * kCell;
    float low = T::widen(channel[0]), high = low;
    for (int e = 1; e < present; ++e) {
      const float x = T::widen(channel[e]);
      low = fminf(low, x);
      high = fmaxf(high, x);
    }
    bounds.low[page * head_dim + c] = low;
    bounds.high[page * head_dim + c] = high;
  }
}

/// Grid: blocks of kWarps pages, rows. A warp has a page.
__global__ void __launch_bounds__(kThreads)
    page_scores_kernel(const float* q, int64_t q_stride, PageBounds bounds, int64_t pages, int64_t head_dim,
                       float* scores, int64_t score_stride) {
  const int64_t page = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp, row = blockIdx.y;
  if (page >= pages) return;
  const float* low = bounds.low + page * head_dim;
  const float* high = bounds.high + page * head_dim;
  float sum = 0;
  for (int64_t c = threadIdx.x % kWarp; c < head_dim; c += kWarp) {
    const float x = q[row * q_stride + c];
    sum += fmaxf(x * low[c], x * high[c]);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) scores[row * score_stride + page] = sum;
}

}  // namespace

void update_page_bounds_cuda(const Cells& keys, int64_t first, int64_t entries, const PageBounds& bounds,
                             CudaStream stream) {
  require(keys.kind == CellKind::keys && keys.head_dim > 0 && keys.head_dim % kCell == 0,
          "update_page_bounds: cells of keys, head_dim a multiple of 16");
  const int64_t begin = first / kCell, pages = cells_for(entries) - begin;
  if (pages <= 0) return;
  with_format(keys.dtype, [&](auto format) {
    using T = decltype(format);
    launch(bounds_kernel<T>, static_cast<unsigned>(pages), kThreads, 0, stream,
           static_cast<const typename T::Stored*>(keys.data), keys.head_dim, begin, entries, bounds);
  });
}

void page_scores_cuda(const float* q, int64_t rows, int64_t q_stride, const PageBounds& bounds, int64_t pages,
                      int64_t head_dim, float* scores, int64_t score_stride, CudaStream stream) {
  require(head_dim > 0 && head_dim % kCell == 0, "page_scores: head_dim must be a multiple of 16");
  launch(page_scores_kernel, dim3(blocks_for(pages, kWarps), static_cast<unsigned>(rows)), kThreads, 0, stream, q,
         q_stride, bounds, pages, head_dim, scores, score_stride);
}

}  // namespace kvarena::kernels
