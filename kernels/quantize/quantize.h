#pragma once
// Quantisation of cache entries in groups, and the packed form that attention reads directly.
//
// A group shares a scale s and a zero lo; code q stands for level(q), decoded s * level(q) + lo. Levels are the
// integers first_level .. first_level + 2^bits - 1, or a codebook, or the numbers of an 8-bit float format. How s and
// lo follow from the group's numbers is its QuantRule. s and lo are rounded to the 16-bit meta format before codes are
// chosen; codes are rounded with ties to even. s == 0 (a constant group) is stored as s = 1 with codes 0, so that a
// value the meta format holds comes back exactly.
//
// Groups: values per token along channels; keys per channel along tokens (group_size consecutive entries of one
// channel) or, with token_groups, like values.
//
// Packed form, per kv head, in cells of 16 entries like cells.h; planes() dwords a lane hold head_dim codes of `bits`
// bits, little end first, code j at bits [bits*j, bits*j+bits) of the lane's little-endian string (so 3- and 5-bit
// codes may cross a dword):
//   keys    codes [cells][planes][16]: lane = entry, code j = channel j
//           scale, zero [entries / group_size][head_dim]; with token_groups as those of values
//   values  codes [cells][planes][16]: lane = channel % 16, code j = (entry % 16) * (head_dim / 16) + channel / 16
//           scale, zero [cells][head_dim / group_size][16]: lane = entry
// Bytes per entry: head_dim * bits / 8 rounded up to whole dwords a lane, and meta_size * head_dim / group_size for
// each of scale and zero that the rule stores.

#include <cstdint>

#include "kernels/cells/cells.h"

namespace kvarena::kernels {

/// Rules for a group's scale s and zero lo, from its numbers x. L = 2^bits - 1.
enum class QuantRule : uint8_t {
  minimum,      // lo = min x, s = (max x - lo) / L (Liu et al., KIVI, arXiv 2402.02750)
  midpoint,     // s = (max - min) / 2^bits, lo = min + s / 2 (Jie et al., SpeCache, arXiv 2503.16163, with 1 bit)
  zero_point,   // s as minimum, z = -min / s, code = round(x / s + z), lo = -s z (Lin et al., QServe, arXiv 2405.04532)
  whole_zero,   // s as minimum, z = round(-min / s), code = round(x / s) + z, lo = -s z (Su et al., arXiv 2501.16383)
  absmax,       // s = max |x| / largest level, lo = 0
  ggml_q8,      // absmax, but codes from the unrounded scale with ties away from zero, as llama.cpp's q8_0
  ggml_signed,  // s = (x of largest magnitude) / -h, h = 2^(bits - 1), code = trunc(x / s + h + 0.5): q4_0, q5_0
  ggml_range,   // s and lo as minimum, code = trunc((x - lo) / s + 0.5), from the unrounded ones: q4_1, q5_1
  ggml_fit,    // t = (x of largest magnitude) / first level, code of the level l nearest to x / t; then the s that fits
               // these levels best, sum x^2 l x / sum x^2 l^2: iq4_nl
  norm,        // s = |x| over the length of the decoded levels, lo = 0: keeps the group's length (TurboQuant)
  plain_norm,  // s = |x| / sqrt(count), lo = 0: levels are those of unit variance
  none,        // the nearest level of x itself: s = 1, lo = 0
  given,       // s and lo are in place before encoding; rounded to levels as they are
  mx,  // s = 2^(floor(log2 max |x|) - floor(log2 largest level)), kept in 8 bits as e8m0; codes of e2m1, ties to even
  nv   // s = max |x| / largest level in 8 bits as e4m3; codes of e2m1, ties to even
};

/// Numbers that the codes stand for.
enum class Levels : uint8_t { uniform, codebook, e4m3, e5m2 };

/// A group_size for keys whose groups are whole channels of the run: one scale a channel.
inline constexpr int64_t kWholeRun = int64_t{1} << 40;

struct QuantFormat {
  int bits = 4;  // 1, 2, 3, 4, 5 or 8; 8 for the float formats
  int64_t group_size = 32;
  DType meta = DType::bf16;  // f16 or bf16: how scale and zero are stored
  QuantRule rule = QuantRule::minimum;
  Levels levels = Levels::uniform;
  int first_level = 0;              // of `uniform` levels
  const float* codebook = nullptr;  // [2^bits], ascending (mx, nv: multiples of kLevelsE2M1); must outlive every use
  bool token_groups = false;        // keys: groups run along the channels of a token, as those of values always do
  float clip = 1;                   // factor on min and max (or max |x|) before the rule; what lies outside saturates
};

[[nodiscard]] static constexpr bool stores_scale(const QuantFormat& format) { return format.rule != QuantRule::none; }
[[nodiscard]] static constexpr bool stores_zero(const QuantFormat& format) {
  switch (format.rule) {
    case QuantRule::minimum:
    case QuantRule::midpoint:
    case QuantRule::zero_point:
    case QuantRule::whole_zero:
    case QuantRule::ggml_range:
    case QuantRule::given: return true;
    case QuantRule::absmax:
    case QuantRule::ggml_q8:
    case QuantRule::ggml_signed:
    case QuantRule::ggml_fit:
    case QuantRule::norm:
    case QuantRule::plain_norm:
    case QuantRule::none:
    case QuantRule::mx:
    case QuantRule::nv: return false;
  }
  return false;
}
/// Whether scales are stored as 8-bit floats, of groups in tokens alone; else they are 16-bit numbers of format.meta.
[[nodiscard]] static constexpr bool has_byte_scales(const QuantFormat& format) {
  return format.rule == QuantRule::mx || format.rule == QuantRule::nv;
}
/// Bytes of a stored scale, and of a zero.
[[nodiscard]] static constexpr int64_t meta_size(const QuantFormat& format) { return has_byte_scales(format) ? 1 : 2; }

/// One kind of one head's packed entries. Memory belongs to the caller.
struct PackedEntries {
  CellKind kind = CellKind::keys;
  QuantFormat format;
  int64_t head_dim = 0;       // multiple of 16; of format.group_size too where groups run along channels
  uint32_t* codes = nullptr;  // packed_code_dwords(...) of them; what no entry owns must stand for numbers (0 does)
  uint16_t* scale =
      nullptr;               // packed_meta_count(...) of them, bytes where has_byte_scales; null unless stores_scale: 1
  uint16_t* zero = nullptr;  // as many; null unless stores_zero: 0
  bool exact = false;        // attention multiplies floats, rounding neither queries nor weights to integers
};

/// Whether groups run along the channels of one token.
[[nodiscard]] static constexpr bool groups_in_tokens(CellKind kind, const QuantFormat& format) {
  return kind == CellKind::values || format.token_groups;
}
/// Dwords a lane of one cell.
[[nodiscard]] static constexpr int64_t packed_planes(int64_t head_dim, int bits) { return (head_dim * bits + 31) / 32; }
/// Dwords of codes for `entries` entries.
[[nodiscard]] static constexpr int64_t packed_code_dwords(int64_t entries, int64_t head_dim, int bits) {
  return cells_for(entries) * packed_planes(head_dim, bits) * kCell;
}
/// Elements of scale (and of zero) for `entries` entries.
[[nodiscard]] static constexpr int64_t packed_meta_count(CellKind kind, int64_t entries, int64_t head_dim,
                                                         const QuantFormat& format) {
  const int64_t group = format.group_size;
  return groups_in_tokens(kind, format) ? cells_for(entries) * (head_dim / group) * kCell
                                        : (entries + group - 1) / group * head_dim;
}

/// Encodes rows [count, head_dim] (row r at rows + r * row_stride) as entries position .. position+count-1. Keys
/// grouped along tokens: group_size is a multiple of 16, position and count are multiples of group_size (with the rule
/// `given`: any). Groups in tokens: any position and count (one token at a time is usual); head_dim is a multiple of
/// group_size, group_size of 16. Other entries keep their codes. Infinities and NaN in a group give an unspecified
/// decoding of that group.
void encode_rows(const PackedEntries& to, int64_t position, int64_t count, const float* rows, int64_t row_stride);

/// Decodes entries position .. position+count-1 into rows [count, head_dim]; s * level + lo as one fused multiply-add.
void decode_rows(const PackedEntries& from, int64_t position, int64_t count, float* rows, int64_t row_stride);

/// Decodes cells first .. first+count-1 to f32 cells (cells.h): out [count][head_dim][16] of keys,
/// [count][16][head_dim] of values. Each number has the bits that decode_rows() gives it; those that no entry owns are
/// unspecified.
void decode_cells(const PackedEntries& from, int64_t first, int64_t count, float* out);

/// Copies entries index[0 .. count-1] of packed values to position .. of `to`, codes and meta unchanged (values only:
/// their groups lie inside a token). In place under the conditions of gather_entries().
void gather_packed_values(const PackedEntries& from, const int32_t* index, int64_t count, const PackedEntries& to,
                          int64_t position);

/// Scale and zero of one group as they are stored, widened to float.
struct GroupMeta {
  float scale = 1, zero = 0;
};

/// Quantises x[0], x[stride], ... (count numbers) as one group into codes [count], by the format's rule (not `given`).
GroupMeta quantize_group(const float* x, int64_t count, int64_t stride, const QuantFormat& format, uint8_t* codes);
/// The nearest levels under a scale and zero that are already fixed.
void quantize_given(const float* x, int64_t count, int64_t stride, const QuantFormat& format, const GroupMeta& meta,
                    uint8_t* codes);
/// The number that a code stands for before scale and zero.
[[nodiscard]] float level_of(const QuantFormat& format, uint32_t code);

/// Packs codes into a little-endian bit string: code j at bits [bits*j, bits*j+bits). 2-bit 0,1,2,3 gives 0xE4. Writes
/// (count * bits + 7) / 8 bytes.
void pack_codes(const uint8_t* codes, int64_t count, int bits, uint8_t* bytes);
void unpack_codes(const uint8_t* bytes, int64_t count, int bits, uint8_t* codes);

}  // namespace kvarena::kernels
