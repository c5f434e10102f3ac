#pragma once
// How a segment puts its entries together from what it stores, in words: what it does on the host a device does from
// them, on a copy of what is stored. Words are steps on rows [entries, kv_heads * head_dim] of float32, keys and values
// each by themselves. What they point to is valid until the segment changes. They are said anew in each pass, so what
// is long is read through functions.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "harness/cache/row_transform.h"
#include "kernels/entry_rows/entry_rows.h"
#include "kernels/quantize/quantize.h"

namespace kvarena {

class EntrySegment;
class QuantizedSegment;

/// Appends what belongs to entries first .. first+count-1 to `to`.
template <class Item>
using EntryReader = std::function<void(int64_t first, int64_t count, std::vector<Item>& to)>;
/// [kv_heads * head_dim], the same for every entry.
template <class Item>
using ChannelReader = std::function<std::vector<Item>()>;
/// Original positions of the same entries of one kv head.
using PositionReader = std::function<std::vector<int32_t>(int64_t kv_head, int64_t first, int64_t count)>;

/// What other codes say is added, times `factor`: a second plane. heads [kv_heads].
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

/// Numbers that take the place of what is there.
struct SparseOverride {
  /// Appends an item for each entry.
  EntryReader<std::vector<kernels::PlacedNumber>> read;
};

/// Low-rank corrections of runs of entries.
struct AddProducts {
  /// Of entries first .. first+count-1: a b is added in each head; f16.
  struct Block {
    int64_t first = 0, count = 0, rank = 0;
    std::vector<std::span<const uint16_t>> a;  // [kv_heads] of [count, rank]
    std::vector<std::span<const uint16_t>> b;  // [kv_heads] of [rank, head_dim]
  };
  EntryReader<Block> read;  // those that begin there, in the order of their entries
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

/// Each channel goes to a place of its own.
struct PermuteChannels {
  ChannelReader<int32_t> read;
};

/// Keys turn to their positions: channels c and c + frequencies.size() of each head.
struct RotateKeys {
  std::shared_ptr<const std::vector<double>> frequencies;  // radians per position
  PositionReader positions;
};

using DequantOp = std::variant<AddCodes, ScaleChannels, ScaleEntries, SparseOverride, AddProducts,
                                     AddSketch, UndoTransform, HadamardBlocks, PermuteChannels, RotateKeys>;

template <class... Steps>
[[nodiscard]] std::vector<DequantOp> in_order(Steps&&... steps) {
  std::vector<DequantOp> all;
  (all.emplace_back(std::forward<Steps>(steps)), ...);
  return all;
}

/// In order.
struct DequantOps {
  std::vector<DequantOp> keys, values;
};

struct DequantProgram {
  /// What rows are before the first step: what codes say (transforms not undone), or entries in 16 or 32 bits.
  std::variant<const QuantizedSegment*, const EntrySegment*> stored;
  DequantOps steps;
};

/// A segment that a device may put together in its place. Entries that are there stay as they are, others only come
/// behind them.
class Dequantizable {
 public:
  virtual ~Dequantizable() = default;
  /// A number that no other content has.
  [[nodiscard]] virtual uint64_t version() const = 0;
  /// None where it cannot be put in words.
  [[nodiscard]] virtual std::optional<DequantProgram> dequant_program() const = 0;
};

}  // namespace kvarena
