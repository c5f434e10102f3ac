#pragma once
// Asymmetric min-max quantisation of cache entries in groups, and the packed form that attention reads directly.
//
// One group (minimum style; Liu et al., KIVI, arXiv 2402.02750): lo = min x, s = (max x - lo) / (2^bits - 1), both
// rounded to the 16-bit meta format, code = round(clamp((x - lo) / s, 0, 2^bits - 1)) with ties to even, decoded s *
// code + lo. s == 0 (a constant group) is stored as s = 1 with codes 0, so that a value the meta format holds comes
// back exactly. Midpoint style, for 1 bit only (Jie et al., SpeCache, arXiv 2503.16163): lo = (3 min + max) / 4, s =
// (max - min) / 2.
//
// Groups: keys per channel along tokens (group_size consecutive entries of one channel), values per token along
// channels.
//
// Packed form, per kv head, in cells of 16 entries like cells.h; planes() dwords a lane hold head_dim codes of `bits`
// bits, little end first, code j at bits [bits*j, bits*j+bits) of the lane's little-endian string (so 3-bit codes may
// cross a dword):
//   keys    codes [cells][planes][16]: lane = entry, code j = channel j
//           scale, zero [entries / group_size][head_dim]
//   values  codes [cells][planes][16]: lane = channel % 16, code j = (entry % 16) * (head_dim / 16) + channel / 16
//           scale, zero [cells][head_dim / group_size][16]: lane = entry
// Bytes per entry: head_dim * bits / 8 rounded up to whole dwords a lane, and 4 * head_dim / group_size of scale and
// zero.

#include <cstdint>

#include "kernels/cells/cells.h"

namespace kvarena::kernels {

enum class ZeroPoint : uint8_t { minimum, midpoint };

struct QuantFormat {
  int bits = 4;  // 1, 2, 3, 4 or 8
  int64_t group_size = 32;
  DType meta = DType::bf16;  // f16 or bf16: how scale and zero are stored
  ZeroPoint zero_point = ZeroPoint::minimum;
};

/// One kind of one head's packed entries. Memory belongs to the caller.
struct PackedEntries {
  CellKind kind = CellKind::keys;
  QuantFormat format;
  int64_t head_dim = 0;       // multiple of 16; of format.group_size too for values
  uint32_t* codes = nullptr;  // packed_code_dwords(...) of them
  uint16_t* scale = nullptr;  // packed_meta_count(...) of them, format.meta
  uint16_t* zero = nullptr;   // as many
};

/// Dwords a lane of one cell.
[[nodiscard]] static constexpr int64_t packed_planes(int64_t head_dim, int bits) { return (head_dim * bits + 31) / 32; }
/// Dwords of codes for `entries` entries.
[[nodiscard]] static constexpr int64_t packed_code_dwords(int64_t entries, int64_t head_dim, int bits) {
  return cells_for(entries) * packed_planes(head_dim, bits) * kCell;
}
/// Elements of scale (and of zero) for `entries` entries.
[[nodiscard]] static constexpr int64_t packed_meta_count(CellKind kind, int64_t entries, int64_t head_dim,
                                                         int64_t group_size) {
  return kind == CellKind::keys ? (entries + group_size - 1) / group_size * head_dim
                                : cells_for(entries) * (head_dim / group_size) * kCell;
}

/// Encodes rows [count, head_dim] (row r at rows + r * row_stride) as entries position .. position+count-1. Keys:
/// group_size is a multiple of 16, position and count are multiples of group_size. Values: any position and count (one
/// token at a time is usual); head_dim is a multiple of group_size, group_size of 16. Other entries keep their codes.
/// Infinities and NaN in a group give an unspecified decoding of that group.
void encode_rows(const PackedEntries& to, int64_t position, int64_t count, const float* rows, int64_t row_stride);

/// Decodes entries position .. position+count-1 into rows [count, head_dim]; s * code + lo as one fused multiply-add.
void decode_rows(const PackedEntries& from, int64_t position, int64_t count, float* rows, int64_t row_stride);

/// Copies entries index[0 .. count-1] of packed values to position .. of `to`, codes and meta unchanged (values only:
/// their groups lie inside a token). In place under the conditions of gather_entries().
void gather_packed_values(const PackedEntries& from, const int32_t* index, int64_t count, const PackedEntries& to,
                          int64_t position);

/// Scale and zero of one group as they are stored, widened to float.
struct GroupMeta {
  float scale = 1, zero = 0;
};

/// Quantises x[0], x[stride], ... (count numbers) as one group into codes [count], by the rules above.
GroupMeta quantize_group(const float* x, int64_t count, int64_t stride, const QuantFormat& format, uint8_t* codes);

/// Packs codes into a little-endian bit string: code j at bits [bits*j, bits*j+bits). 2-bit 0,1,2,3 gives 0xE4. Writes
/// (count * bits + 7) / 8 bytes.
void pack_codes(const uint8_t* codes, int64_t count, int bits, uint8_t* bytes);
void unpack_codes(const uint8_t* bytes, int64_t count, int bits, uint8_t* codes);

}  // namespace kvarena::kernels
