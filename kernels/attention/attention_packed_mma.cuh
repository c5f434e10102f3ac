#pragma once
// Scores and values of packed entries by tensor cores, for attention_chunk.cuh: 1, 2 and 4 bits with uniform levels, in
// caches of 16 bits. Codes become bf16 integers two at a time, exactly; scales go to the other factor (queries of a
// token group, weights of an entry), which enters as the sum of two bf16 numbers, and zeros are added apart in floats.

#include "kernels/attention/attention_mma.cuh"

namespace kvarena::kernels {

/// Whether codes may be multiplied as integers here. A cache of floats asks for floats throughout.
__device__ __forceinline__ bool mma_levels(const PackedEntries& packed) {
  const int bits = packed.format.bits;
  return (bits == 1 || bits == 2 || bits == 4) && packed.format.levels == Levels::uniform && !packed.exact;
}
/// Whether tensor cores multiply these keys: scales along tokens, and channels that fill four or eight words a lane.
__device__ __forceinline__ bool mma_keys(const PackedEntries& packed) {
  return mma_levels(packed) && !packed.format.token_groups && packed.head_dim * packed.format.bits % 128 == 0;
}
/// Whether tensor cores multiply these values: no entry's codes may lie across words.
__device__ __forceinline__ bool mma_values(const PackedEntries& packed) {
  return mma_levels(packed) && packed.head_dim <= 128 && (packed.head_dim & (packed.head_dim - 1)) == 0;
}

/// Calls body with the bits as a constant.
template <class Body>
__device__ __forceinline__ void with_bits(int bits, const Body& body) {
  if (bits == 1) return body(std::integral_constant<int, 1>{});
  if (bits == 2) return body(std::integral_constant<int, 2>{});
  body(std::integral_constant<int, 4>{});
}

/// The codes at bit 0 and bit 16 of `word` as two bf16 levels: 128 + code has the code as its last bits.
template <int BITS>
__device__ __forceinline__ uint32_t level_pair(uint32_t word, int first_level) {
  constexpr uint32_t kMask = ((1u << BITS) - 1) * 0x10001u;
  return subtract_bfloat_pair((word & kMask) | 0x43004300u, static_cast<float>(128 - first_level));
}

__device__ __forceinline__ float2 meta_pair(const uint16_t* meta, int64_t at, DType format, float absent) {
  if (meta == nullptr) return {absent, absent};
  return {load_meta(meta, at, format), load_meta(meta, at + 1, format)};
}

/// Scores of two touched cells of packed keys, first and first + 1 where that lies before `last`, by a warp.
template <int BITS, int ROWS>
__device__ inline void score_packed_tile(const AttendChunk<ROWS>& chunk, int first, int last) {
  constexpr int kTiles = ROWS / kTileRows, kCodes = 32 / BITS, kHalf = kCodes / 2;
  const PackedEntries& packed = chunk.run.packed_keys;
  const QuantFormat& format = packed.format;
  const int lane = static_cast<int>(threadIdx.x % kWarp), g = lane / 4, t = lane % 4;
  const int channels = chunk.call.head_dim, lanes = static_cast<int>(kCell), planes = channels / kCodes;
  const bool two = first + 1 < last;
  const int64_t near_cell = touched_cell(chunk, first), far_cell = touched_cell(chunk, two ? first + 1 : first);
  const int64_t near_group = near_cell * kCell / format.group_size, far_group = far_cell * kCell / format.group_size;
  // Lane (g, t) reads entries 4 (g % 4) .. +3 of cell g / 4; column g of product j is the j-th of them.
  const uint32_t* codes = packed.codes + (g < 4 ? near_cell : far_cell) * planes * lanes + 4 * (g % 4) + t * lanes;
  const TouchPlaces places = places_of(chunk, first + t / 2, t < 2 || two);
  for (int side = 0; side < (near_group == far_group ? 1 : 2); ++side) {  // scales of a token group
    const int64_t group = side == 0 ? near_group : far_group, meta = group * channels;
    float d[kTiles][4][4] = {}, zeros[kTiles] = {};
    for (int u = 0; u < planes / 4; ++u) {
      const uint4 words = load_16_bytes(codes + 4 * u * lanes);
      const int channel = kCodes * (4 * u + t);
#pragma unroll
      for (int k = 0; k < kHalf; k += 2) {  // columns: channel + k, + k + kHalf, + k + 1, + k + 1 + kHalf
        const float2 scale = meta_pair(packed.scale, meta + channel + k, format.meta, 1);
        const float2 far_scale = meta_pair(packed.scale, meta + channel + k + kHalf, format.meta, 1);
        const float2 zero = meta_pair(packed.zero, meta + channel + k, format.meta, 0);
        const float2 far_zero = meta_pair(packed.zero, meta + channel + k + kHalf, format.meta, 0);
        uint4 a[kTiles];
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          const float* q = chunk.q + (i * kTileRows + g) * q_stride(chunk.call) + channel + k;
          const float q0 = q[0], q1 = q[1], q2 = q[kHalf], q3 = q[kHalf + 1];
          a[i] = split_fragment<BF16>(q0 * scale.x, q2 * far_scale.x, q1 * scale.y, q3 * far_scale.y);
          zeros[i] = fmaf(q0, zero.x, fmaf(q1, zero.y, fmaf(q2, far_zero.x, fmaf(q3, far_zero.y, zeros[i]))));
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const uint32_t word = word_of(words, j) >> (BITS * k);
          const uint32_t b0 = level_pair<BITS>(word, format.first_level);
          const uint32_t b1 = level_pair<BITS>(word >> BITS, format.first_level);
#pragma unroll
          for (int i = 0; i < kTiles; ++i) mma_16x8x16<BF16>(d[i][j], a[i], b0, b1);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      zeros[i] += __shfl_xor_sync(kAllLanes, zeros[i], 1);
      zeros[i] += __shfl_xor_sync(kAllLanes, zeros[i], 2);
    }
    if ((t < 2 ? near_group : far_group) != group) continue;
      // Columns 2t and 2t+1: entries 8 (t % 2) + j and + 4 + j of cell t / 2.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int entry = 8 * (t % 2) + 4 * half + j;
        const int position = places.begin + __popc(places.listed & ((1u << entry) - 1));
        if ((places.listed >> entry & 1u) == 0 || position >= places.end) continue;
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          chunk.weights[(i * kTileRows + g) * kWeightStride + position] =
              (d[i][j][half] + d[i][j][half + 2] + zeros[i]) * chunk.call.scale;
        }
      }
    }
  }
}

/// Adds to `out` the packed values at list positions begin .. end-1 for the 8 rows of tile `tile`, by all threads: a
/// warp has 64 positions of the chunk.
template <int BITS, int ROWS>
__device__ inline void add_packed_values(const AttendChunk<ROWS>& chunk, int begin, int end, int tile) {
  constexpr int kPositions = kChunkInts / kAttendWarps, kMostBlocks = 8;
  const PackedEntries& packed = chunk.run.packed_values;
  const QuantFormat& format = packed.format;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % static_cast<int>(kWarp), g = lane / 4, t = lane % 4;
  const int warp = thread / static_cast<int>(kWarp), dim = chunk.call.value_dim, lanes = static_cast<int>(kCell);
  const int blocks = dim / lanes, group_blocks = static_cast<int>(format.group_size) / lanes,
            entry_bits = blocks * BITS;
  const int64_t planes = packed_planes(dim, BITS);
  // Product (block, side) has channel 16 block + 2 g + side in column g; a lane holds columns 2t and 2t+1 of row g.
  float d[kMostBlocks][2][4] = {}, zeros[kMostBlocks] = {};
  for (int step = 0; step < kPositions / 16; ++step) {
    const int base = warp * kPositions + 16 * step, p = base + 4 * t;
    if (base >= end || base + 16 <= begin) continue;
    int64_t meta[4];
    float weights[4];
    uint32_t low[2][2], high[2][2];  // [entries 0, 1 or 2, 3][side]: blocks in 16 bits of either entry; those behind
    uint32_t fields[4][2];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool seen = p + i >= begin && p + i < end;
      const int64_t entry = seen ? entry_at(chunk.run.run, chunk.first + p + i) : 0;
      const int row = static_cast<int>(entry % kCell), bit = row * entry_bits;
      meta[i] = entry / kCell * (dim / format.group_size) * kCell + row;
      weights[i] = seen ? chunk.weights[(tile * kTileRows + g) * kWeightStride + p + i] : 0.0f;
      const auto* at = packed.codes + (entry / kCell * planes + bit / 32) * lanes + 2 * g;
      fields[i][0] = at[0] >> (bit % 32);
      fields[i][1] = at[1] >> (bit % 32);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        low[i][side] = pair_halves(fields[2 * i][side], fields[2 * i + 1][side], false);
        high[i][side] = pair_halves(fields[2 * i][side], fields[2 * i + 1][side], true);
      }
    }
    constexpr int kBlocksInHalf = 16 / BITS;
    uint4 a{};
    float zero = 0;
#pragma unroll
    for (int block = 0; block < kMostBlocks; ++block) {
      if (block >= blocks) break;
      if (block % group_blocks == 0) {  // weights under the scales of these channels
        float scaled[4];
        zero = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int64_t at = meta[i] + block / group_blocks * kCell;
          const bool seen = p + i >= begin && p + i < end;
          scaled[i] = seen ? weights[i] * scale_at(packed, at) : 0.0f;
          zero = seen ? fmaf(weights[i], zero_at(packed, at), zero) : zero;
        }
        a = split_fragment<BF16>(scaled[0], scaled[1], scaled[2], scaled[3]);
      }
      zeros[block] += zero;
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const int shift = block % kBlocksInHalf * BITS;
        const bool behind = block >= kBlocksInHalf;
        const uint32_t b0 = level_pair<BITS>((behind ? high[0][side] : low[0][side]) >> shift, format.first_level);
        const uint32_t b1 = level_pair<BITS>((behind ? high[1][side] : low[1][side]) >> shift, format.first_level);
        mma_16x8x16<BF16>(d[block][side], a, b0, b1);
      }
    }
  }
#pragma unroll
  for (int first = 0; first < kMostBlocks; first += kMeetChannels / 16) {
    if (first >= blocks) break;
    float* meet = chunk.meet + (warp * kTileRows + g) * kMeetChannels;
#pragma unroll
    for (int b = 0; b < kMeetChannels / 16; ++b) {
      const int block = first + b;
      float zero = zeros[block] + __shfl_xor_sync(kAllLanes, zeros[block], 1);
      zero += __shfl_xor_sync(kAllLanes, zero, 2);
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const float(&sums)[4] = d[block][side];
        meet[16 * b + 4 * t + side] = sums[0] + sums[2] + zero;
        meet[16 * b + 4 * t + 2 + side] = sums[1] + sums[3] + zero;
      }
    }
    add_meeting(chunk, 16 * first, tile);
  }
}

}  // namespace kvarena::kernels
