#pragma once
// Reading of one kv head's keys and values in device kernels, from cells of numbers or packed codes.
//
// A source gives kWidth neighbouring numbers at a time: of keys, kWidth entries of one channel; of values, kWidth
// channels of one entry.

#include "kernels/attention/attention.h"
#include "kernels/common/parallel.h"
#include "kernels/cuda/numbers.cuh"
#include "kernels/quantize/levels.cuh"

namespace kvarena::kernels {

/// HeadRun with what it points to beside it: a description that the device can read.
struct DeviceRun {
  HeadRun run;  // its pointers to PackedEntries are the host's and not followed
  PackedEntries packed_keys, packed_values;
  int64_t dropped = 0;  // tokens that have no entry, of a run that grows
};

[[nodiscard]] inline DeviceRun describe(const HeadRun& run) {
  require(run.bias == nullptr, "entries with biases are attended to on the host");
  DeviceRun device{run, {}, {}, 0};
  if (run.packed_keys != nullptr) device.packed_keys = *run.packed_keys;
  if (run.packed_values != nullptr) device.packed_values = *run.packed_values;
  return device;
}

/// Entries that queries may attend, counted as the run lists them.
[[nodiscard]] __host__ __device__ inline int64_t listed_entries(const HeadRun& run) {
  return run.index != nullptr ? run.index_count : run.entries;
}

__device__ __forceinline__ int64_t entry_at(const HeadRun& run, int64_t position) {
  return run.index != nullptr ? run.index[position] : position;
}

/// Number of listed entries below `entry`.
__device__ inline int64_t positions_below(const HeadRun& run, int64_t entry) {
  if (run.index == nullptr) return entry;
  int64_t low = 0, high = run.index_count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (run.index[middle] < entry) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/// List positions that query t sees: begin .. end-1.
struct DeviceVisible {
  int64_t begin, end;
};
__device__ inline DeviceVisible visible_positions(const HeadRun& run, int64_t q_len, bool causal, const int32_t* seen,
                                                  int64_t window, int64_t t) {
  int64_t end = run.entries;
  if (seen != nullptr) {
    end = seen[t] < end ? seen[t] : end;
  } else if (causal) {
    end -= q_len - 1 - t;
    end = end > 0 ? end : 0;
  }
  int64_t begin = window > 0 ? end - window : 0;
  begin = begin > 0 ? begin : 0;
  return {positions_below(run, begin), positions_below(run, end)};
}

/// One cell of keys of 16 or 32 bits.
template <class T>
struct CellKeys {
  static constexpr int kWidth = kVector<T>;
  const typename T::Stored* cell;
  __device__ CellKeys(const void* keys, int64_t cell_index, int64_t head_dim)
      : cell(static_cast<const typename T::Stored*>(keys) + cell_index * kCell * head_dim) {}
  __device__ void load(int channel, int lane, float (&x)[kWidth]) const {
    load_vector<T>(cell + channel * static_cast<int>(kCell) + lane, x);
  }
};

/// One cell of packed keys, decoded as it is read; the bits are those of decode_rows.
struct PackedKeys {
  static constexpr int kWidth = 4;
  const PackedEntries& packed;
  const uint32_t* planes;
  int64_t cell;
  __device__ PackedKeys(const PackedEntries& entries, int64_t cell_index)
      : packed(entries),
        planes(entries.codes + cell_index * packed_planes(entries.head_dim, entries.format.bits) * kCell),
        cell(cell_index) {}
  __device__ void load(int channel, int lane, float (&x)[kWidth]) const {
    const QuantFormat& format = packed.format;
    uint32_t codes[kWidth];
    load_codes(planes, channel * format.bits, format.bits, lane, codes);
    if (format.token_groups) {
      const int64_t at = (cell * (packed.head_dim / format.group_size) + channel / format.group_size) * kCell + lane;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) x[i] = decoded(packed, at + i, codes[i]);
      return;
    }
    const int64_t at = cell * kCell / format.group_size * packed.head_dim + channel;
    const float scale = scale_at(packed, at), zero = zero_at(packed, at);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) x[i] = fmaf(scale, level_at(format, codes[i]), zero);
  }
};

/// Values of 16 or 32 bits; entries are counted from the first that is not packed.
template <class T>
struct CellValues {
  static constexpr int kWidth = kVector<T>;
  const typename T::Stored* values;
  int64_t dim, first_entry;
  __device__ void load(int64_t entry, int channel, float (&x)[kWidth]) const {
    load_vector<T>(values + (entry - first_entry) * dim + channel, x);
  }
};

struct PackedValues {
  static constexpr int kWidth = 4;
  const PackedEntries& packed;
  __device__ void load(int64_t entry, int channel, float (&x)[kWidth]) const {
    const QuantFormat& format = packed.format;
    const int dim = static_cast<int>(packed.head_dim), lanes = static_cast<int>(kCell);
    const int64_t cell = entry / kCell;
    const int row = static_cast<int>(entry % kCell);
    uint32_t codes[kWidth];
    load_codes(packed.codes + cell * packed_planes(packed.head_dim, format.bits) * kCell,
               (row * (dim / lanes) + channel / lanes) * format.bits, format.bits, channel % lanes, codes);
    const int64_t at = (cell * (dim / format.group_size) + channel / format.group_size) * kCell + row;
    const float scale = scale_at(packed, at), zero = zero_at(packed, at);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) x[i] = fmaf(scale, level_at(format, codes[i]), zero);
  }
};

/// After cell_products(), the lane that differs in this bit alone holds the same entry.
template <class Source>
inline constexpr unsigned kTwinLane = 16 / Source::kWidth == 2 ? 2 : 4;

/// Inner products of ROWS queries (shared memory, row r at q + r * q_stride) with the 16 entries of a cell, by one
/// warp. Channels are added in one order whatever else is in the call. Returns the entry whose scores this lane holds;
/// every entry has an even number of lanes, all with the same bits.
template <int ROWS, class Source>
__device__ __forceinline__ int cell_products(const Source& source, const float* q, int q_stride, int channels,
                                             float (&scores)[ROWS]) {
  constexpr int kWidth = Source::kWidth, kLanes = static_cast<int>(kCell) / kWidth;  // lanes that share a channel
  const int lane = static_cast<int>(threadIdx.x % kWarp), block = lane % kLanes;
  float sums[ROWS][kWidth];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[r][i] = 0;
  }
#pragma unroll 4
  for (int c = lane / kLanes; c < channels; c += static_cast<int>(kWarp) / kLanes) {
    float x[kWidth];
    source.load(c, block * kWidth, x);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const float factor = q[r * q_stride + c];
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sums[r][i] = fmaf(factor, x[i], sums[r][i]);
    }
  }
  // Lanes that hold other channels of the same entries: at each step half of the entries go each way.
  int entry = block * kWidth, width = 16;
#pragma unroll
  for (int n = kWidth / 2; n > 0; n /= 2) {
    const bool upper = (lane & width) != 0;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
      for (int i = 0; i < n; ++i) {
        const float away = upper ? sums[r][i] : sums[r][i + n], kept = upper ? sums[r][i + n] : sums[r][i];
        sums[r][i] = kept + __shfl_xor_sync(kAllLanes, away, width);
      }
    }
    entry += upper ? n : 0;
    width /= 2;
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) scores[r] = sums[r][0] + __shfl_xor_sync(kAllLanes, sums[r][0], width);
  return entry;
}

}  // namespace kvarena::kernels
