#pragma once
// Shared memory of a block of device attention, and the cells in which a chunk's list positions lie.

#include "kernels/attention/entries.cuh"

namespace kvarena::kernels {

inline constexpr int kAttendThreads = 256, kAttendWarps = kAttendThreads / static_cast<int>(kWarp),
                     kChunkInts = static_cast<int>(kChunk);

/// One problem as the device sees it.
struct AttendWork {
  AttendProblem problem;  // `runs` is the host's and not followed
  int64_t first_run;      // index in AttendCall::runs of its first kv head's run
  int64_t partials;       // offset of [chunks][rows][value_dim + 2] in AttendCall::partials
  int64_t chunks;         // at most, of the problem's longest run
  const int32_t* before;  // null, or address of the number of tokens before the queries
  int64_t least_dropped;  // smallest RunGrowth::dropped of the problem's runs
};

/// Entries of a problem's run, as it was described or as it has grown.
__device__ inline int64_t entries_of(const AttendWork& work, const DeviceRun& run) {
  return work.before == nullptr ? run.run.entries : *work.before - run.dropped + work.problem.q_len;
}
/// Chunks of the problem's longest run.
__device__ inline int64_t chunks_of(const AttendWork& work) {
  if (work.before == nullptr) return work.chunks;
  return (*work.before - work.least_dropped + work.problem.q_len + kChunk - 1) / kChunk;
}

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
  int64_t entries;  // entries of the run
  int64_t first;    // list position
  int count;
  float* q;        // [ROWS][q_stride(call)]
  float* weights;  // [ROWS][kWeightStride], scores first
  float* meet;     // [kMeetFloats], partial sums of threads or warps
  float* out;      // [ROWS][value_dim]
  float *max, *sum;
  int *low, *high;   // [ROWS], relative to `first`
  uint4* fragments;  // q for 16-bit cells: [ROWS / 8][head_dim / 16][32]
  int* touches;      // [kChunk + 1]: where the run of list positions of each touched cell begins; its end; their number
};

/// Padded so that rows begin in different banks.
inline constexpr int kWeightStride = kChunkInts + 4;
inline constexpr int kMeetFloats = kAttendThreads * 16;

/// Padded so that one channel of 8 rows lies in different banks.
__host__ __device__ inline int q_stride(const AttendCall& call) { return call.head_dim + 1; }
/// Words of the query fragments that 16-bit cells need.
template <class T, int ROWS>
__host__ __device__ inline int64_t fragment_words(const AttendCall& call) {
  return sizeof(typename T::Stored) == 2 ? ROWS / 8 * (call.head_dim / 16) * 32 * 4 : 0;
}
/// Shared memory of a block.
template <class T, int ROWS>
int64_t attend_shared_bytes(const AttendCall& call) {
  const int64_t rows = ROWS * (q_stride(call) + call.value_dim + kWeightStride);
  return 4 * (fragment_words<T, ROWS>(call) + rows + kMeetFloats + 4 * ROWS + kChunkInts + 2);
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

/// First list position of touch `touch`; of the one behind the last touch, the end.
template <int ROWS>
__device__ inline int touch_begin(const AttendChunk<ROWS>& chunk, int touch) {
  if (chunk.run.run.index != nullptr) return chunk.touches[touch];
  return min(touch * static_cast<int>(kCell), chunk.count);
}
template <int ROWS>
__device__ inline int touch_count(const AttendChunk<ROWS>& chunk) {
  if (chunk.run.run.index != nullptr) return chunk.touches[kChunkInts + 1];
  return static_cast<int>(cells_for(chunk.count));
}
template <int ROWS>
__device__ inline int64_t touched_cell(const AttendChunk<ROWS>& chunk, int touch) {
  return entry_at(chunk.run.run, chunk.first + touch_begin(chunk, touch)) / kCell;
}

}  // namespace kvarena::kernels
