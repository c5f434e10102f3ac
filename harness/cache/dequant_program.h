#pragma once
// Steps that turn stored numbers into keys and values. The host (dequantize.h) and a device interpret the same ones, on
// rows [entries, kv_heads * head_dim] of float32, keys and values each by themselves. What they point to is valid until
// the segment changes. A program is made anew in each pass, so what is long is read through functions.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "harness/cache/row_transform.h"
#include "kernels/entry_rows/entry_rows.h"
#include "kernels/quantize/quantize.h"

namespace kvarena {

/// Appends what belongs to entries first .. first+count-1 to `to`.
template <class Item>
using EntryReader = std::function<void(int64_t first, int64_t count, std::vector<Item>& to)>;
/// [kv_heads * head_dim], the same for every entry.
template <class Item>
using ChannelReader = std::function<std::vector<Item>()>;
/// Original positions of the same entries of one kv head.
using PositionReader = std::function<std::vector<int32_t>(int64_t kv_head, int64_t first, int64_t count)>;

/// Adds the numbers of other codes, times `factor`: a second plane. heads [kv_heads].
struct AddCodes {
  std::vector<kernels::PackedEntries> heads;
  float factor = 1;
};

/// A scale for each channel of all heads, the same for every entry.
struct ScaleChannels {
  ChannelReader<kernels::RowScale> read;
};

/// A scale for each entry and head, or for each entry.
struct ScaleEntries {
  bool shared = false;  // one for all heads
  EntryReader<kernels::RowScale> read;
};

/// A scale for each channel of all heads, the same for `tile` consecutive entries. Reads tiles, [kv_heads * head_dim]
/// each.
struct ScaleTiles {
  int64_t tile = 0;
  EntryReader<kernels::RowScale> read;
};

/// Numbers that take the place of what is there.
struct SparseOverride {
  struct Numbers {
    std::vector<int32_t> counts;  // of each entry
    std::vector<kernels::PlacedNumber> values;
  };
  /// Appends the numbers of entries first .. first+count-1.
  std::function<void(int64_t first, int64_t count, Numbers& to)> read;
};

/// Low-rank corrections of runs of entries.
struct AddProducts {
  /// Adds a b to entries first .. first+count-1 of each head; f16.
  struct Block {
    int64_t first = 0, count = 0, rank = 0;
    std::vector<std::span<const uint16_t>> a;  // [kv_heads] of [count, rank]
    std::vector<std::span<const uint16_t>> b;  // [kv_heads] of [rank, head_dim]
  };
  EntryReader<Block> read;  // blocks that hold any of the entries, in order
};

/// factor * length * S^t s is added in each head: a sketch of what codes lack, by the signs s of its products with S.
struct AddSketch {
  std::span<const uint16_t> signs;                   // [entries, kv_heads, head_dim / 16], a set bit is minus
  std::span<const uint16_t> lengths;                 // [entries, kv_heads], f16
  std::shared_ptr<const std::vector<float>> matrix;  // S [head_dim, head_dim]
  float factor = 1;
};

/// A codec's transform is taken away.
struct UndoTransform {
  RowTransformPtr transform;
};

/// Each `run` channels, a power of two, go through the normalised Hadamard matrix.
struct HadamardBlocks {
  int64_t run = 0;
};

/// Each channel goes to a place of its own. As a first step it may name fewer a head: cells lack the rest, which is 0.
struct PermuteChannels {
  ChannelReader<int32_t> read;
};

/// Channels c and c + head_dim / 2 of each head are a length and an angle; they become its coordinates.
struct FromPolar {};

/// Keys turn to their positions: channels c and c + frequencies.size() of each head.
struct RotateKeys {
  std::shared_ptr<const std::vector<double>> frequencies;  // radians per position
  PositionReader positions;
};

using DequantOp = std::variant<AddCodes, ScaleChannels, ScaleEntries, SparseOverride, AddProducts, AddSketch,
                               UndoTransform, HadamardBlocks, PermuteChannels, RotateKeys, ScaleTiles, FromPolar>;

template <class... Steps>
[[nodiscard]] std::vector<DequantOp> in_order(Steps&&... steps) {
  std::vector<DequantOp> all;
  (all.emplace_back(std::forward<Steps>(steps)), ...);
  return all;
}

/// Steps of each side, in order.
struct DequantProgram {
  std::vector<DequantOp> keys, values;
  [[nodiscard]] bool empty() const { return keys.empty() && values.empty(); }
};

}  // namespace kvarena
