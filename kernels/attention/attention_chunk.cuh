#pragma once
// One chunk of one kv head against up to 8 query rows, by one block of a device kernel: scores by cell, softmax by row,
// values by position, with the chunk's scores in shared memory.

#include "kernels/attention/entries.cuh"

namespace kvarena::kernels {

inline constexpr int kAttendThreads = 256, kAttendWarps = kAttendThreads / static_cast<int>(kWarp),
                     kChunkInts = static_cast<int>(kChunk);

/// One problem as the device sees it.
struct AttendWork {
  AttendProblem problem;  // `runs` is the host's and not followed
  int64_t first_run;      // of its kv_heads in AttendCall::runs
  int64_t partials;       // where [chunks][rows][value_dim + 2] begin in AttendCall::partials
  int64_t chunks;         // of its longest run
};

struct AttendCall {
  const AttendWork* problems;
  const DeviceRun* runs;
  float* partials;  // null: blocks merge into the state themselves
  int64_t q_heads, kv_heads;
  int head_dim, value_dim;
  float scale;
};

/// One chunk in shared memory.
template <int ROWS>
struct AttendChunk {
  const AttendCall& call;
  const DeviceRun& run;
  int64_t first;  // list position
  int count;
  float* q;        // [ROWS][head_dim]
  float* weights;  // [ROWS][kChunk], scores first
  float* meet;     // [kAttendThreads][8], where sums over slots meet
  float* out;      // [ROWS][value_dim]
  float *max, *sum;
  int *low, *high;  // [ROWS], relative to `first`
  int* touches;     // [kChunk + 1]: where the run of list positions of each touched cell begins; its end; their number
};

inline constexpr int kMeetFloats = kAttendThreads * 8;
template <int ROWS>
int64_t attend_shared_bytes(const AttendCall& call) {
  return 4 * (ROWS * (call.head_dim + call.value_dim + kChunkInts) + kMeetFloats + 4 * ROWS + kChunkInts + 2);
}

/// Positions that any row sees.
template <int ROWS>
__device__ inline void seen_by_any(const AttendChunk<ROWS>& chunk, int& low, int& high) {
  low = kChunkInts;
  high = 0;
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    if (chunk.low[r] >= chunk.high[r]) continue;
    low = min(low, chunk.low[r]);
    high = max(high, chunk.high[r]);
  }
}

/// Lists the cells that an index touches, in order: one warp, 32 positions at a time.
template <int ROWS>
__device__ inline void find_touches(const AttendChunk<ROWS>& chunk) {
  const int lane = static_cast<int>(threadIdx.x);
  const int32_t* index = chunk.run.run.index + chunk.first;
  int touches = 0;
  for (int begin = 0; begin < chunk.count; begin += static_cast<int>(kWarp)) {
    const int p = begin + lane;
    const bool starts =
        p < chunk.count && (p == 0 || index[p] / static_cast<int>(kCell) != index[p - 1] / static_cast<int>(kCell));
    const uint32_t all = __ballot_sync(kAllLanes, starts);
    if (starts) chunk.touches[touches + __popc(all & ((1u << lane) - 1))] = p;
    touches += __popc(all);
  }
  if (lane == 0) {
    chunk.touches[touches] = chunk.count;
    chunk.touches[kChunkInts + 1] = touches;
  }
}

/// Scores of one touched cell, by a warp: list positions begin .. end-1 of the chunk lie in it.
template <class T, int ROWS>
__device__ inline void score_touch(const AttendChunk<ROWS>& chunk, int begin, int end) {
  const HeadRun& run = chunk.run.run;
  const int64_t cell = entry_at(run, chunk.first + begin) / kCell, packed_cells = cells_for(run.packed_key_count);
  float scores[ROWS];
  int entry = 0;
  if (cell < packed_cells) {
    entry = cell_products<ROWS>(PackedKeys(chunk.run.packed_keys, cell), chunk.q, chunk.call.head_dim, scores);
  } else {
    entry = cell_products<ROWS>(CellKeys<T>(run.keys, cell - packed_cells, chunk.call.head_dim), chunk.q,
                                chunk.call.head_dim, scores);
  }
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  uint32_t listed = 0xffffu;
  if (run.index != nullptr) {
    listed = lane < end - begin ? 1u << (run.index[chunk.first + begin + lane] % static_cast<int>(kCell)) : 0;
    listed = __reduce_or_sync(kAllLanes, listed);
  }
  const int position = begin + __popc(listed & ((1u << entry) - 1));
  if ((listed >> entry & 1u) == 0 || position >= end) return;
#pragma unroll
  for (int r = 0; r < ROWS; ++r) chunk.weights[r * kChunkInts + position] = scores[r] * chunk.call.scale;
}

template <class T, int ROWS>
__device__ inline void score_chunk(const AttendChunk<ROWS>& chunk, int low, int high) {
  const int warp = static_cast<int>(threadIdx.x / kWarp), cell = static_cast<int>(kCell);
  if (chunk.run.run.index == nullptr) {
    for (int t = low / cell + warp; t * cell < high; t += kAttendWarps) {
      score_touch<T, ROWS>(chunk, t * cell, min(t * cell + cell, chunk.count));
    }
    return;
  }
  const int touches = chunk.touches[kChunkInts + 1];
  for (int t = warp; t < touches; t += kAttendWarps) {
    const int begin = chunk.touches[t], end = chunk.touches[t + 1];
    if (begin < high && end > low) score_touch<T, ROWS>(chunk, begin, end);
  }
}

/// Scores of a row to weights by a warp; 0 where the row does not see what others see.
template <int ROWS>
__device__ inline void softmax_row(const AttendChunk<ROWS>& chunk, int row, int low, int high) {
  const int lane = static_cast<int>(threadIdx.x % kWarp), warp = static_cast<int>(kWarp);
  float* weights = chunk.weights + row * kChunkInts;
  const int begin = chunk.low[row], end = chunk.high[row];
  float maximum = -INFINITY;
  for (int p = lane; p < chunk.count; p += warp) {
    if (p >= begin && p < end) maximum = fmaxf(maximum, weights[p]);
  }
  maximum = warp_max(maximum);
  float total = 0;
  for (int p = lane; p < chunk.count; p += warp) {
    if (p >= begin && p < end) {
      weights[p] = expf(weights[p] - maximum);
      total += weights[p];
    } else if (p >= low && p < high) {
      weights[p] = 0;
    }
  }
  total = warp_sum(total);
  if (lane == 0) {
    chunk.max[row] = maximum;
    chunk.sum[row] = total;
  }
}

/// Adds to `out` the values at list positions begin .. end-1. A thread has kWidth channels and every `slots`-th
/// position.
template <int ROWS, class Source>
__device__ inline void add_values(const AttendChunk<ROWS>& chunk, const Source& source, int begin, int end) {
  constexpr int kWidth = Source::kWidth;
  const int dim = chunk.call.value_dim, vectors = dim / kWidth, slots = kAttendThreads / vectors;
  const int thread = static_cast<int>(threadIdx.x), slot = thread / vectors, channel = thread % vectors * kWidth;
  float sums[ROWS][kWidth];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[r][i] = 0;
  }
  if (slot < slots) {
#pragma unroll 4
    for (int p = (begin - slot + slots - 1) / slots * slots + slot; p < end; p += slots) {
      float x[kWidth];
      source.load(entry_at(chunk.run.run, chunk.first + p), channel, x);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const float weight = chunk.weights[r * kChunkInts + p];
#pragma unroll
        for (int i = 0; i < kWidth; ++i) sums[r][i] = fmaf(weight, x[i], sums[r][i]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    if (slot < slots) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) chunk.meet[slot * dim + channel + i] = sums[r][i];
    }
    __syncthreads();
    for (int c = thread; c < dim; c += kAttendThreads) {
      float total = 0;
      for (int s = 0; s < slots; ++s) total += chunk.meet[s * dim + c];
      chunk.out[r * dim + c] += total;
    }
    __syncthreads();
  }
}

template <class T, int ROWS>
__device__ inline void value_chunk(const AttendChunk<ROWS>& chunk, int low, int high) {
  const HeadRun& run = chunk.run.run;
  int border = low;  // the first position whose value is not packed
  if (run.packed_value_count > 0) {
    const int64_t below = positions_below(run, run.packed_value_count) - chunk.first;
    border = static_cast<int>(below < low ? low : below > high ? high : below);
    if (border > low) add_values(chunk, PackedValues{chunk.run.packed_values}, low, border);
  }
  if (border == high) return;
  const auto* values = static_cast<const typename T::Stored*>(run.values);
  add_values(chunk, CellValues<T>{values, chunk.call.value_dim, run.packed_value_count}, border, high);
}

/// The query rows of a block: row r is token r / group, head r % group of the group.
struct AttendRows {
  int64_t first, count, group, head;
  __device__ int64_t token(int row) const { return (first + row) / group; }
  __device__ int64_t q_head(int row) const { return head * group + (first + row) % group; }
};

/// False: no row sees any of it, and nothing was computed but maximum and sum.
template <class T, int ROWS>
__device__ inline bool attend_chunk(const AttendChunk<ROWS>& chunk, const AttendProblem& problem,
                                    const AttendRows& rows) {
  const int thread = static_cast<int>(threadIdx.x), value_dim = chunk.call.value_dim;
  if (thread < ROWS) {
    DeviceVisible visible{0, 0};
    if (thread < rows.count) {
      visible = visible_positions(chunk.run.run, problem.q_len, problem.causal, problem.seen, problem.window,
                                  rows.token(thread));
    }
    const int64_t begin = visible.begin - chunk.first, end = visible.end - chunk.first;
    chunk.low[thread] = static_cast<int>(begin < 0 ? 0 : begin > chunk.count ? chunk.count : begin);
    chunk.high[thread] = static_cast<int>(end < 0 ? 0 : end > chunk.count ? chunk.count : end);
  }
  for (int i = thread; i < ROWS * value_dim; i += kAttendThreads) chunk.out[i] = 0;
  if (chunk.run.run.index != nullptr && threadIdx.x < kWarp) find_touches(chunk);
  __syncthreads();
  int low = 0, high = 0;
  seen_by_any(chunk, low, high);
  if (low < high) score_chunk<T>(chunk, low, high);
  __syncthreads();
  for (int row = thread / static_cast<int>(kWarp); row < ROWS; row += kAttendWarps) softmax_row(chunk, row, low, high);
  __syncthreads();
  if (low < high) value_chunk<T>(chunk, low, high);
  return low < high;
}

}  // namespace kvarena::kernels
