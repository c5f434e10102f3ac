#pragma once
// One chunk of one kv head against the query rows of a block: scores by cell, softmax by row, values by position, with
// the chunk's scores in shared memory. f32 and packed entries are multiplied in floats; 16-bit cells by tensor cores.

#include "kernels/attention/attention_packed_mma.cuh"
#include "kernels/attention/entries.cuh"

namespace kvarena::kernels {

/// Rows that share a pass over numbers in registers.
template <int ROWS>
inline constexpr int kPassRows = ROWS < 8 ? ROWS : 8;

/// Scores of one touched cell of `source`, by a warp.
template <int ROWS, class Source>
__device__ inline void score_touch(const AttendChunk<ROWS>& chunk, const Source& source, int touch) {
  const HeadRun& run = chunk.run.run;
  const int lane = static_cast<int>(threadIdx.x % kWarp), begin = touch_begin(chunk, touch);
  const int end = touch_begin(chunk, touch + 1);
  uint32_t listed = 0xffffu;
  if (run.index != nullptr) {
    listed = lane < end - begin ? 1u << (run.index[chunk.first + begin + lane] % static_cast<int>(kCell)) : 0;
    listed = __reduce_or_sync(kAllLanes, listed);
  }
  constexpr int kPass = kPassRows<ROWS>;
#pragma unroll 1
  for (int first = 0; first < ROWS; first += kPass) {
    float scores[kPass];
    const int entry = cell_products<kPass>(source, chunk.q + first * q_stride(chunk.call), q_stride(chunk.call),
                                           chunk.call.head_dim, scores);
    const int position = begin + __popc(listed & ((1u << entry) - 1));
    if ((listed >> entry & 1u) == 0 || position >= end) continue;
#pragma unroll
    for (int r = 0; r < kPass; ++r) {
      chunk.weights[(first + r) * kWeightStride + position] = scores[r] * chunk.call.scale;
    }
  }
}

/// Scores of the rows for their visible list positions among low .. high-1.
template <class T, bool PACKED, int ROWS>
__device__ inline void score_chunk(const AttendChunk<ROWS>& chunk, int low, int high) {
  const HeadRun& run = chunk.run.run;
  const int warp = static_cast<int>(threadIdx.x / kWarp), touches = touch_count(chunk);
  const int64_t packed_cells = PACKED ? cells_for(run.packed_key_count) : 0;
  int packed = 0;  // touches of packed cells, which come first
  if (packed_cells > 0) {
    const int64_t below = positions_below(run, packed_cells * kCell) - chunk.first;
    const int positions = static_cast<int>(below < 0 ? 0 : below > chunk.count ? chunk.count : below);
    while (packed < touches && touch_begin(chunk, packed) < positions) ++packed;
  }
  const auto seen = [&](int touch, int count) {
    return touch_begin(chunk, touch) < high && touch_begin(chunk, min(touch + count, touches)) > low;
  };
  if constexpr (PACKED) {
    bool done = false;
    if constexpr (sizeof(typename T::Stored) == 2) {
      done = mma_keys(chunk.run.packed_keys);
      for (int t = 2 * warp; done && t < packed; t += 2 * kAttendWarps) {
        if (!seen(t, 2)) continue;
        with_bits(chunk.run.packed_keys.format.bits,
                  [&](auto bits) { score_packed_tile<decltype(bits)::value>(chunk, t, packed); });
      }
    }
    for (int t = warp; !done && t < packed; t += kAttendWarps) {
      if (seen(t, 1)) score_touch(chunk, PackedKeys(chunk.run.packed_keys, touched_cell(chunk, t)), t);
    }
  }
  if constexpr (sizeof(typename T::Stored) == 2) {
    constexpr int kCells = 4;
    for (int t = packed + kCells * warp; t < touches; t += kCells * kAttendWarps) {
      if (seen(t, kCells)) score_tile<T>(chunk, t, min(t + kCells, touches));
    }
  } else {
    for (int t = packed + warp; t < touches; t += kAttendWarps) {
      if (!seen(t, 1)) continue;
      score_touch(chunk, CellKeys<T>(run.keys, touched_cell(chunk, t) - packed_cells, chunk.call.head_dim), t);
    }
  }
}

/// Turns a row's scores into weights, by a warp; 0 where the row does not see an entry that others see.
template <int ROWS>
__device__ inline void softmax_row(const AttendChunk<ROWS>& chunk, int row, int low, int high) {
  const int lane = static_cast<int>(threadIdx.x % kWarp), warp = static_cast<int>(kWarp);
  float* weights = chunk.weights + row * kWeightStride;
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

/// Adds to `out` the values at list positions begin .. end-1, for kPassRows rows from `first`. A thread has kWidth
/// channels and every `slots`-th position.
template <int ROWS, class Source>
__device__ inline void add_values(const AttendChunk<ROWS>& chunk, const Source& source, int begin, int end, int first) {
  constexpr int kWidth = Source::kWidth, kPass = kPassRows<ROWS>;
  const int dim = chunk.call.value_dim, vectors = dim / kWidth, slots = kAttendThreads / vectors;
  const int thread = static_cast<int>(threadIdx.x), slot = thread / vectors, channel = thread % vectors * kWidth;
  float sums[kPass][kWidth];
#pragma unroll
  for (int r = 0; r < kPass; ++r) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[r][i] = 0;
  }
  if (slot < slots) {
#pragma unroll 4
    for (int p = (begin - slot + slots - 1) / slots * slots + slot; p < end; p += slots) {
      float x[kWidth];
      source.load(entry_at(chunk.run.run, chunk.first + p), channel, x);
#pragma unroll
      for (int r = 0; r < kPass; ++r) {
        const float weight = chunk.weights[(first + r) * kWeightStride + p];
#pragma unroll
        for (int i = 0; i < kWidth; ++i) sums[r][i] = fmaf(weight, x[i], sums[r][i]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kPass; ++r) {
    if (slot < slots) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) chunk.meet[slot * dim + channel + i] = sums[r][i];
    }
    __syncthreads();
    for (int c = thread; c < dim; c += kAttendThreads) {
      float total = 0;
      for (int s = 0; s < slots; ++s) total += chunk.meet[s * dim + c];
      chunk.out[(first + r) * dim + c] += total;
    }
    __syncthreads();
  }
}

/// Adds to `out` the packed values at list positions begin .. end-1.
template <class T, int ROWS>
__device__ inline void packed_value_chunk(const AttendChunk<ROWS>& chunk, int begin, int end) {
  if constexpr (sizeof(typename T::Stored) == 2) {
    if (mma_values(chunk.run.packed_values)) {
      for (int tile = 0; tile < ROWS / kTileRows; ++tile) {
        with_bits(chunk.run.packed_values.format.bits,
                  [&](auto bits) { add_packed_values<decltype(bits)::value>(chunk, begin, end, tile); });
      }
      return;
    }
  }
  for (int row = 0; row < ROWS; row += kPassRows<ROWS>) {
    add_values(chunk, PackedValues{chunk.run.packed_values}, begin, end, row);
  }
}

template <class T, bool PACKED, int ROWS>
__device__ inline void value_chunk(const AttendChunk<ROWS>& chunk, int low, int high) {
  const HeadRun& run = chunk.run.run;
  int border = low;  // the first position whose value is not packed
  if constexpr (PACKED) {
    if (run.packed_value_count > 0) {
      const int64_t below = positions_below(run, run.packed_value_count) - chunk.first;
      border = static_cast<int>(below < low ? low : below > high ? high : below);
      if (border > low) packed_value_chunk<T>(chunk, low, border);
    }
  }
  if (border == high) return;
  if constexpr (sizeof(typename T::Stored) == 2) {
    add_values_16<T>(chunk, border, high);
  } else {
    const auto* values = static_cast<const typename T::Stored*>(run.values);
    const CellValues<T> source{values, chunk.call.value_dim, run.packed_value_count};
    for (int row = 0; row < ROWS; row += kPassRows<ROWS>) add_values(chunk, source, border, high, row);
  }
}

/// The query rows of a block: row r is token r / group, head r % group of the group.
struct AttendRows {
  int64_t first, count, group, head;
  __device__ int64_t token(int row) const { return (first + row) / group; }
  __device__ int64_t q_head(int row) const { return head * group + (first + row) % group; }
};

/// Attends the rows to a chunk; false when no row sees any of it: only maximum and sum were set then.
template <class T, bool PACKED, int ROWS>
__device__ inline bool attend_chunk(const AttendChunk<ROWS>& chunk, const AttendProblem& problem,
                                    const AttendRows& rows) {
  const int thread = static_cast<int>(threadIdx.x), value_dim = chunk.call.value_dim;
  if (thread < ROWS) {
    DeviceVisible visible{0, 0};
    if (thread < rows.count) {
      HeadRun run = chunk.run.run;
      run.entries = chunk.entries;
      visible = visible_positions(run, problem.q_len, problem.causal, problem.seen, problem.window, rows.token(thread));
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
  if (low < high) score_chunk<T, PACKED>(chunk, low, high);
  __syncthreads();
  for (int row = thread / static_cast<int>(kWarp); row < ROWS; row += kAttendWarps) softmax_row(chunk, row, low, high);
  __syncthreads();
  if (low < high) value_chunk<T, PACKED>(chunk, low, high);
  return low < high;
}

}  // namespace kvarena::kernels
