// A block has a row. The k-th largest key is found byte by byte from the top, with a histogram of the keys that agree
// so far; then one pass writes what lies above it, and the first of its equals, in the order of the row.
#include "kernels/common/parallel.h"
#include "kernels/cuda/runtime.cuh"
#include "kernels/top_k/top_k_cuda.h"

namespace kvarena::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / static_cast<int>(kWarp), kBins = 256;

/// Order-preserving key: larger score, larger key; -0 and 0 alike.
__device__ uint32_t key_of(float score) {
  const uint32_t u = __float_as_uint(score + 0.0f);
  return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}

struct RowState {
  int bins[kBins];
  int above[kWarps], equal[kWarps];
  uint32_t border;  // the bytes of the k-th largest key that are known
  int needed;       // how many keys with these bytes are among the k
  int nan;
};

/// One byte of the border: all threads count, thread 0 decides.
__device__ void narrow(const float* scores, int n, int shift, RowState& state) {
  const int thread = static_cast<int>(threadIdx.x);
  state.bins[thread] = 0;
  __syncthreads();
  const uint32_t border = state.border;
  for (int i = thread; i < n; i += kThreads) {
    const uint32_t key = key_of(scores[i]);
    const bool agrees = shift == 24 || (key ^ border) >> (shift + 8) == 0;
    if (agrees) atomicAdd(&state.bins[key >> shift & 0xffu], 1);
  }
  __syncthreads();
  if (thread == 0) {
    int bin = kBins - 1;
    while (state.bins[bin] < state.needed) state.needed -= state.bins[bin--];
    state.border |= static_cast<uint32_t>(bin) << shift;
  }
  __syncthreads();
}

/// Numbers of the block's threads with a true predicate: before this one, and in all.
struct Count {
  int before, all;
};
__device__ Count count_block(bool yes, int* warps) {
  const int lane = static_cast<int>(threadIdx.x % kWarp), warp = static_cast<int>(threadIdx.x / kWarp);
  const uint32_t votes = __ballot_sync(kAllLanes, yes);
  if (lane == 0) warps[warp] = __popc(votes);
  __syncthreads();
  Count count{__popc(votes & ((1u << lane) - 1)), 0};
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) count.before += warps[w];
    count.all += warps[w];
  }
  return count;
}

/// Grid: rows.
__global__ void __launch_bounds__(kThreads)
    top_k_kernel(const float* scores, int n, int64_t score_stride, int k, int32_t* index, int32_t* chosen) {
  RowState& state = *shared_memory<RowState>();
  const int thread = static_cast<int>(threadIdx.x);
  scores += blockIdx.x * score_stride;
  index += int64_t{blockIdx.x} * k;
  if (thread == 0) {
    state.border = 0;
    state.needed = k;
    state.nan = 0;
  }
  __syncthreads();
  for (int i = thread; i < n; i += kThreads) {
    if (scores[i] != scores[i]) atomicOr(&state.nan, 1);
  }
  __syncthreads();
  if (thread == 0) chosen[blockIdx.x] = state.nan != 0 ? -1 : k;
  if (state.nan != 0 || k == 0) return;
  for (int shift = 24; shift >= 0; shift -= 8) narrow(scores, n, shift, state);
  const uint32_t border = state.border;
  const int needed = state.needed;
  int above = 0, equal = 0;  // so far
  for (int first = 0; first < n; first += kThreads) {
    const int i = first + thread;
    const uint32_t key = i < n ? key_of(scores[i]) : 0;
    const bool is_above = i < n && key > border, is_equal = i < n && key == border;
    const Count a = count_block(is_above, state.above), e = count_block(is_equal, state.equal);
    const int rank = equal + e.before;
    if (is_above || (is_equal && rank < needed)) index[above + a.before + min(rank, needed)] = i;
    above += a.all;
    equal += e.all;
    __syncthreads();
  }
}

constexpr int kWideThreads = 1024;

/// A score as a number that is larger for a larger score and, of equals, for the lower index.
__device__ unsigned long long rank_of(float score, int i) {
  return static_cast<unsigned long long>(key_of(score)) << 32 | static_cast<uint32_t>(~i);
}

/// Grid: rows.
__global__ void __launch_bounds__(kWideThreads)
    argmax_kernel(const float* scores, int n, int64_t score_stride, int32_t* index) {
  scores += blockIdx.x * score_stride;
  auto* bests = shared_memory<unsigned long long>();  // [threads]; 0 where there was nothing
  const int thread = static_cast<int>(threadIdx.x);
  unsigned long long best = 0;
  bool nan = false;
  for (int i = thread; i < n; i += kWideThreads) {
    nan = nan || scores[i] != scores[i];
    const unsigned long long rank = rank_of(scores[i], i);
    best = rank > best ? rank : best;
  }
  bests[thread] = nan ? ~0ull : best;
  for (int width = kWideThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (thread < width && bests[thread + width] > bests[thread]) bests[thread] = bests[thread + width];
  }
  if (thread == 0) index[blockIdx.x] = bests[0] == ~0ull ? -1 : static_cast<int32_t>(~static_cast<uint32_t>(bests[0]));
}

}  // namespace

void argmax_rows_cuda(const float* scores, int64_t rows, int64_t n, int64_t score_stride, int32_t* index,
                      CudaStream stream) {
  require(n > 0 && n <= INT32_MAX, "argmax_rows: 0 < n < 2^31");
  launch(argmax_kernel, static_cast<unsigned>(rows), kWideThreads, kWideThreads * 8, stream, scores,
         static_cast<int>(n), score_stride, index);
}

void top_k_rows_cuda(const float* scores, int64_t rows, int64_t n, int64_t score_stride, int64_t k, int32_t* index,
                     int32_t* chosen, CudaStream stream) {
  require(k >= 0 && k <= n && n <= INT32_MAX, "top_k_rows: k must be between 0 and n, n below 2^31");
  launch(top_k_kernel, static_cast<unsigned>(rows), kThreads, static_cast<int64_t>(sizeof(RowState)), stream, scores,
         static_cast<int>(n), score_stride, static_cast<int>(k), index, chosen);
}

}  // namespace kvarena::kernels
