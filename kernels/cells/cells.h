#pragma once
// The layout of 16- and 32-bit cache entries: cells of 16 entries of one kv head.
//
//   keys    [cells][head_dim][16]   lanes run over entries: sixteen scores at a time
//   values  [cells][16][head_dim]   lanes run over channels: an entry's value is contiguous
//
// Entry e lies in cell e / 16 at lane e % 16. head_dim is a multiple of 16 (keys and values may differ). What lies in
// the lanes of the last cell beyond the last entry is never interpreted, so memory need not be cleared. Buffers need
// the alignment of their element only; 64 bytes is faster. A cell of 64 channels is 2 KiB in 16 bit: reading whole
// cells in any order runs at full memory bandwidth.

#include <cstdint>

#include "kernels/common/dtype.h"

namespace kvarena::kernels {

inline constexpr int64_t kCell = 16;

[[nodiscard]] static constexpr int64_t cells_for(int64_t entries) { return (entries + kCell - 1) / kCell; }
/// Bytes of the cells that hold `entries` entries of keys or of values.
[[nodiscard]] static constexpr int64_t cell_bytes(int64_t entries, int64_t head_dim, DType dtype) {
  return cells_for(entries) * kCell * head_dim * size_of(dtype);
}

enum class CellKind : uint8_t { keys, values };

/// One kind of one head's run of cells.
struct Cells {
  CellKind kind = CellKind::keys;
  DType dtype = DType::f32;
  int64_t head_dim = 0;  // multiple of 16
  void* data = nullptr;  // layout above
};

/// Index of element (entry, channel) in the array of a run.
[[nodiscard]] static constexpr int64_t cell_offset(CellKind kind, int64_t head_dim, int64_t entry, int64_t channel) {
  const int64_t cell = entry / kCell, lane = entry % kCell;
  return cell * kCell * head_dim + (kind == CellKind::keys ? channel * kCell + lane : lane * head_dim + channel);
}

/// Writes rows [count, head_dim] (row r at rows + r * row_stride) as entries position .. position+count-1, rounding to
/// nearest even. Entries before `position` keep their bits. To append all heads of [n, kv_heads, head_dim], call once
/// per head with row_stride = kv_heads * head_dim.
void store_rows(const Cells& to, int64_t position, int64_t count, const float* rows, int64_t row_stride);

/// Reads entries position .. position+count-1 into rows [count, head_dim].
void load_rows(const Cells& from, int64_t position, int64_t count, float* rows, int64_t row_stride);

/// Copies entries index[0 .. count-1] of `from` to entries position .. position+count-1 of `to`, bits unchanged. Kind,
/// dtype and head_dim must agree. `to` may be the same run as `from` (compaction in place) when index is strictly
/// ascending and index[i] >= position + i for every i.
void gather_entries(const Cells& from, const int32_t* index, int64_t count, const Cells& to, int64_t position);

/// Copies entries from_position .. +count-1 to to_position .. +count-1, bits unchanged; whole cells by memcpy where
/// both positions are multiples of 16. The same run is allowed when to_position <= from_position.
void copy_entries(const Cells& from, int64_t from_position, int64_t count, const Cells& to, int64_t to_position);

}  // namespace kvarena::kernels
