#pragma once
// Scores and values of 16-bit cells by tensor cores, for attention_chunk.cuh. A tile has 8 query rows; queries and
// weights enter as sums of two 16-bit numbers (mma.cuh), keys and values as they lie: words are paired in registers,
// and the order of channels and entries inside a product is what makes every read 16 bytes a lane.

#include "kernels/attention/attention_chunk_memory.cuh"
#include "kernels/cuda/mma.cuh"

namespace kvarena::kernels {

inline constexpr int kTileRows = 8, kMeetChannels = 64;

/// Channel of step s (16 channels) that lane t's column `slot` stands for: columns 2t, 2t+1, 2t+8, 2t+9.
__device__ __forceinline__ int score_channel(int step, int t, int slot) { return 16 * step + 4 * slot + t; }

/// Queries as fragments [tile][step][lane] in shared memory, by all threads.
template <class T, int ROWS>
__device__ inline void make_fragments(const AttendChunk<ROWS>& chunk) {
  const int channels = chunk.call.head_dim, steps = channels / 16, warp = static_cast<int>(kWarp);
  for (int i = static_cast<int>(threadIdx.x); i < ROWS / kTileRows * steps * warp; i += kAttendThreads) {
    const int lane = i % warp, step = i / warp % steps, row = i / warp / steps * kTileRows + lane / 4;
    const float* q = chunk.q + row * q_stride(chunk.call);
    float x[4];
#pragma unroll
    for (int slot = 0; slot < 4; ++slot) x[slot] = q[score_channel(step, lane % 4, slot)];
    chunk.fragments[i] = split_fragment<T>(x[0], x[1], x[2], x[3]);
  }
}

/// Positions of one touch that are listed: where it begins and ends in the chunk, and which lanes of its cell they are.
struct TouchPlaces {
  int begin, end;
  uint32_t listed;
};

/// Touch `touch` for the lanes of its quarter of the warp (lane % 4 alike).
template <int ROWS>
__device__ inline TouchPlaces places_of(const AttendChunk<ROWS>& chunk, int touch, bool exists) {
  const int lanes = static_cast<int>(kCell), lane = static_cast<int>(threadIdx.x % kWarp);
  TouchPlaces places{0, 0, 0};
  if (exists) places = {touch_begin(chunk, touch), touch_begin(chunk, touch + 1), 0xffffu};
  if (chunk.run.run.index == nullptr) return places;
  const int32_t* index = chunk.run.run.index + chunk.first;
  uint32_t listed = 0;
  for (int p = places.begin + lane / 4; p < places.end; p += 8) listed |= 1u << (index[p] % lanes);
#pragma unroll
  for (int width = 4; width <= 16; width *= 2) listed |= __shfl_xor_sync(kAllLanes, listed, width);
  places.listed = listed;
  return places;
}

/// Scores of four touched cells of 16-bit keys, first .. first+3 of which those before `last` exist, by a warp.
template <class T, int ROWS>
__device__ inline void score_tile(const AttendChunk<ROWS>& chunk, int first, int last) {
  constexpr int kTiles = ROWS / kTileRows;
  const int lane = static_cast<int>(threadIdx.x % kWarp), g = lane / 4, t = lane % 4;
  const int channels = chunk.call.head_dim, steps = channels / 16, lanes = static_cast<int>(kCell);
  // Lane (g, t) reads half a cell: entries 8 (g % 2) .. +7 of cell g / 2.
  const int mine = min(first + g / 2, last - 1);
  const int64_t cell = touched_cell(chunk, mine) - cells_for(chunk.run.run.packed_key_count);
  const auto* keys = static_cast<const uint16_t*>(chunk.run.run.keys) + cell * lanes * channels + g % 2 * 8 + t * lanes;
  float d[kTiles][8][4] = {};
#pragma unroll 2
  for (int s = 0; s < steps; ++s) {
    uint4 words[4];
#pragma unroll
    for (int slot = 0; slot < 4; ++slot) words[slot] = load_16_bytes(keys + (16 * s + 4 * slot) * lanes);
    uint4 a[kTiles];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) a[i] = chunk.fragments[(i * steps + s) * static_cast<int>(kWarp) + lane];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const uint32_t b0 = pair_halves(word_of(words[0], j / 2), word_of(words[1], j / 2), j % 2 != 0);
      const uint32_t b1 = pair_halves(word_of(words[2], j / 2), word_of(words[3], j / 2), j % 2 != 0);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) mma_16x8x16<T>(d[i][j], a[i], b0, b1);
    }
  }
  // Columns 2t and 2t+1 are the halves of cell t.
  const TouchPlaces places = places_of(chunk, first + t, first + t < last);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int entry = 8 * half + j, position = places.begin + __popc(places.listed & ((1u << entry) - 1));
      if ((places.listed >> entry & 1u) == 0 || position >= places.end) continue;
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        chunk.weights[(i * kTileRows + g) * kWeightStride + position] =
            (d[i][j][half] + d[i][j][half + 2]) * chunk.call.scale;
      }
    }
  }
}

/// Adds the warps' partial sums in `meet` [warps][8 rows][64 channels], channels first .. of a tile's rows, to `out`.
template <int ROWS>
__device__ inline void add_meeting(const AttendChunk<ROWS>& chunk, int first, int tile) {
  constexpr int kNumbers = kTileRows * kMeetChannels;
  __syncthreads();
  for (int k = static_cast<int>(threadIdx.x); k < kNumbers; k += kAttendThreads) {
    const int row = tile * kTileRows + k / kMeetChannels, c = first + k % kMeetChannels;
    if (c >= chunk.call.value_dim) continue;
    float total = 0;
#pragma unroll
    for (int w = 0; w < kAttendWarps; ++w) total += chunk.meet[w * kNumbers + k];
    chunk.out[row * chunk.call.value_dim + c] += total;
  }
  __syncthreads();
}

/// Adds to `out` the 16-bit values at list positions begin .. end-1, by all threads: a warp has 64 positions of the
/// chunk, and takes 64 channels at a time.
template <class T, int ROWS>
__device__ inline void add_values_16(const AttendChunk<ROWS>& chunk, int begin, int end) {
  constexpr int kTiles = ROWS / kTileRows, kPositions = kChunkInts / kAttendWarps;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % static_cast<int>(kWarp), g = lane / 4, t = lane % 4;
  const int warp = thread / static_cast<int>(kWarp), dim = chunk.call.value_dim;
  const HeadRun& run = chunk.run.run;
  const auto* values = static_cast<const uint16_t*>(run.values) - run.packed_value_count * dim;
  for (int first_channel = 0; first_channel < dim; first_channel += kMeetChannels) {
    const int channel = first_channel + 8 * g;  // of this lane's 8
    float d[kTiles][8][4] = {};
#pragma unroll 2
    for (int step = 0; step < kPositions / 16; ++step) {
      const int base = warp * kPositions + 16 * step, p = base + 4 * t;
      if (base >= end || base + 16 <= begin) continue;
      uint4 words[4];
      bool seen[4];
#pragma unroll
      for (int slot = 0; slot < 4; ++slot) {
        seen[slot] = p + slot >= begin && p + slot < end;
        words[slot] = {0, 0, 0, 0};
        if (seen[slot] && channel < dim) {
          words[slot] = load_16_bytes(values + entry_at(run, chunk.first + p + slot) * dim + channel);
        }
      }
      uint4 a[kTiles];
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const float* weights = chunk.weights + (i * kTileRows + g) * kWeightStride + p;
        a[i] = split_fragment<T>(seen[0] ? weights[0] : 0.0f, seen[1] ? weights[1] : 0.0f, seen[2] ? weights[2] : 0.0f,
                                 seen[3] ? weights[3] : 0.0f);
      }
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const uint32_t b0 = pair_halves(word_of(words[0], j / 2), word_of(words[1], j / 2), j % 2 != 0);
        const uint32_t b1 = pair_halves(word_of(words[2], j / 2), word_of(words[3], j / 2), j % 2 != 0);
#pragma unroll
        for (int i = 0; i < kTiles; ++i) mma_16x8x16<T>(d[i][j], a[i], b0, b1);
      }
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      float* meet = chunk.meet + (warp * kTileRows + g) * kMeetChannels;
#pragma unroll
      for (int j = 0; j < 8; ++j) {  // columns 2t and 2t+1 are channels of lanes g = 2t and 2t+1
        meet[16 * t + j] = d[i][j][0] + d[i][j][2];
        meet[16 * t + 8 + j] = d[i][j][1] + d[i][j][3];
      }
      add_meeting(chunk, first_channel, i);
    }
  }
}

}  // namespace kvarena::kernels
