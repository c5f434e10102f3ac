#include "kernels/quantize/quantize.h"

#include <cmath>
#include <vector>

#include "kernels/common/parallel.h"
#include "kernels/quantize/fp4.h"
#include "kernels/quantize/fp8.h"
#include "kernels/quantize/quantize_paths.h"

namespace kvarena::kernels {
namespace {

void require_valid(const PackedEntries& p) {
  const QuantFormat& f = p.format;
  require((f.bits >= 1 && f.bits <= 5) || f.bits == 8, "quantize: bits must be 1-5 or 8");
  require(f.meta != DType::f32, "quantize: scale and zero are stored in 16 bits");
  require(f.levels != Levels::codebook || f.codebook != nullptr, "quantize: a codebook is missing");
  require(f.levels == Levels::uniform || f.levels == Levels::codebook || f.bits == 8,
          "quantize: the float formats have 8 bits");
  require(p.head_dim > 0 && p.head_dim % kCell == 0, "quantize: head_dim must be a positive multiple of 16");
  require(f.group_size > 0 && f.group_size % kCell == 0, "quantize: group_size must be a positive multiple of 16");
  require(!groups_in_tokens(p.kind, f) || p.head_dim % f.group_size == 0,
          "quantize: head_dim must be a multiple of a group_size along channels");
  require(!has_byte_scales(f) || (f.bits == 4 && f.levels == Levels::codebook && groups_in_tokens(p.kind, f)),
          "quantize: 8-bit scales are for blocks of e2m1 along channels");
}

/// First bit of code j of one lane in the cell's planes.
struct Place {
  int64_t dword;  // index into codes, of this lane
  int shift;
};

Place place_of(const PackedEntries& p, int64_t entry, int64_t channel) {
  const bool keys = p.kind == CellKind::keys;
  const int64_t lane = keys ? entry % kCell : channel % kCell;
  const int64_t j = keys ? channel : entry % kCell * (p.head_dim / kCell) + channel / kCell;
  const int64_t bit = j * p.format.bits;
  const int64_t plane = entry / kCell * packed_planes(p.head_dim, p.format.bits) + bit / 32;
  return {plane * kCell + lane, static_cast<int>(bit % 32)};
}

void put_code(const PackedEntries& p, int64_t entry, int64_t channel, uint32_t code) {
  const Place at = place_of(p, entry, channel);
  const uint32_t mask = (1u << p.format.bits) - 1;
  uint32_t& low = p.codes[at.dword];
  low = (low & ~(mask << at.shift)) | (code << at.shift);
  if (at.shift + p.format.bits > 32) {
    uint32_t& high = p.codes[at.dword + kCell];
    high = (high & ~(mask >> (32 - at.shift))) | (code >> (32 - at.shift));
  }
}

uint32_t get_code(const PackedEntries& p, int64_t entry, int64_t channel) {
  const Place at = place_of(p, entry, channel);
  uint32_t code = p.codes[at.dword] >> at.shift;
  if (at.shift + p.format.bits > 32) code |= p.codes[at.dword + kCell] << (32 - at.shift);
  return code & ((1u << p.format.bits) - 1);
}

int64_t meta_index(const PackedEntries& p, int64_t entry, int64_t channel) {
  const int64_t group = p.format.group_size;
  if (!groups_in_tokens(p.kind, p.format)) return entry / group * p.head_dim + channel;
  return (entry / kCell * (p.head_dim / group) + channel / group) * kCell + entry % kCell;
}

void put_meta(const PackedEntries& p, int64_t at, GroupMeta meta) {
  if (has_byte_scales(p.format)) {
    const bool power = p.format.rule == QuantRule::mx;
    reinterpret_cast<uint8_t*>(p.scale)[at] =
        power ? static_cast<uint8_t>(exponent_bits(meta.scale)) : f32_to_e4m3(meta.scale);
    return;
  }
  if (p.scale != nullptr) p.scale[at] = f32_to_half(meta.scale, p.format.meta);
  if (p.zero != nullptr) p.zero[at] = f32_to_half(meta.zero, p.format.meta);
}

GroupMeta get_meta(const PackedEntries& p, int64_t at) {
  if (has_byte_scales(p.format)) {
    const uint8_t byte = reinterpret_cast<const uint8_t*>(p.scale)[at];
    return {.scale = p.format.rule == QuantRule::mx ? e8m0_to_f32(byte) : e4m3_to_f32(byte)};
  }
  GroupMeta meta;
  if (p.scale != nullptr) meta.scale = half_to_f32(p.scale[at], p.format.meta);
  if (p.zero != nullptr) meta.zero = half_to_f32(p.zero[at], p.format.meta);
  return meta;
}

/// One group: `count` numbers x[0], x[stride], ... whose scale and zero lie at `at`.
void encode_group(const PackedEntries& to, int64_t at, const float* x, int64_t count, int64_t stride, uint8_t* codes) {
  if (to.format.rule == QuantRule::given) return quantize_given(x, count, stride, to.format, get_meta(to, at), codes);
  put_meta(to, at, quantize_group(x, count, stride, to.format, codes));
}

/// Encodes `count` entries of every channel as one group each.
void encode_channels(const PackedEntries& to, int64_t first, int64_t count, const float* rows, int64_t row_stride) {
  static thread_local Scratch<uint8_t> scratch;
  uint8_t* codes = scratch.get(count);
  for (int64_t c = 0; c < to.head_dim; ++c) {
    encode_group(to, meta_index(to, first, c), rows + c, count, row_stride, codes);
    for (int64_t e = 0; e < count; ++e) put_code(to, first + e, c, codes[e]);
  }
}

void encode_token(const PackedEntries& to, int64_t entry, const float* row) {
  const int64_t group = to.format.group_size;
  static thread_local Scratch<uint8_t> scratch;
  uint8_t* codes = scratch.get(group);
  for (int64_t c = 0; c < to.head_dim; c += group) {
    encode_group(to, meta_index(to, entry, c), row + c, group, 1, codes);
    for (int64_t i = 0; i < group; ++i) put_code(to, entry, c + i, codes[i]);
  }
}

}  // namespace

void encode_rows(const PackedEntries& to, int64_t position, int64_t count, const float* rows, int64_t row_stride) {
  require_valid(to);
  if (count == 0) return;
  if (!groups_in_tokens(to.kind, to.format) && to.format.rule != QuantRule::given) {
    const int64_t group = to.format.group_size;
    require(position % group == 0 && count % group == 0, "encode_rows: keys are encoded in whole groups");
    return parallel_for(count / group, [&](int64_t g) {
      encode_channels(to, position + g * group, group, rows + g * group * row_stride, row_stride);
    });
  }
  // Work is cut by cells: entries of one cell share dwords.
  const int64_t first_cell = position / kCell, cells = (position + count - 1) / kCell - first_cell + 1;
  parallel_for(cells, [&](int64_t i) {
    const int64_t begin = std::max(position, (first_cell + i) * kCell);
    const int64_t end = std::min(position + count, (first_cell + i + 1) * kCell);
    const float* x = rows + (begin - position) * row_stride;
    if (!groups_in_tokens(to.kind, to.format)) return encode_channels(to, begin, end - begin, x, row_stride);
    for (int64_t e = begin; e < end; ++e) encode_token(to, e, x + (e - begin) * row_stride);
  });
}

void decode_rows(const PackedEntries& from, int64_t position, int64_t count, float* rows, int64_t row_stride) {
  require_valid(from);
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t c = 0; c < from.head_dim; ++c) {
      const GroupMeta meta = get_meta(from, meta_index(from, position + r, c));
      const float level = level_of(from.format, get_code(from, position + r, c));
      rows[r * row_stride + c] = std::fma(meta.scale, level, meta.zero);
    }
  }
}

void decode_cells(const PackedEntries& from, int64_t first, int64_t count, float* out) {
  require_valid(from);
  const QuantizeTable* fast = KVARENA_ACTIVE_TABLE(quantize_table);
  const int64_t d = from.head_dim;
  for (int64_t i = 0; i < count; ++i, out += kCell * d) {
    if (fast != nullptr) {
      fast->decode_cell(from, first + i, out);
      continue;
    }
    for (int64_t e = 0; e < kCell; ++e) {
      for (int64_t c = 0; c < d; ++c) {
        const int64_t entry = (first + i) * kCell + e;
        const GroupMeta meta = get_meta(from, meta_index(from, entry, c));
        const float level = level_of(from.format, get_code(from, entry, c));
        out[cell_offset(from.kind, d, e, c)] = std::fma(meta.scale, level, meta.zero);
      }
    }
  }
}

void gather_packed_values(const PackedEntries& from, const int32_t* index, int64_t count, const PackedEntries& to,
                          int64_t position) {
  require_valid(from);
  require(from.kind == CellKind::values && to.kind == CellKind::values && from.head_dim == to.head_dim &&
              from.format.bits == to.format.bits && from.format.group_size == to.format.group_size &&
              from.format.meta == to.format.meta && from.format.levels == to.format.levels &&
              from.format.rule == to.format.rule,
          "gather_packed_values: runs of different kinds");
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t c = 0; c < from.head_dim; ++c) put_code(to, position + i, c, get_code(from, index[i], c));
    for (int64_t c = 0; c < from.head_dim; c += from.format.group_size) {
      put_meta(to, meta_index(to, position + i, c), get_meta(from, meta_index(from, index[i], c)));
    }
  }
}

void pack_codes(const uint8_t* codes, int64_t count, int bits, uint8_t* bytes) {
  const uint32_t mask = (uint32_t{1} << bits) - 1;
  uint32_t held = 0;
  int filled = 0;  // bits that wait in `held`, fewer than 8
  for (int64_t j = 0; j < count; ++j) {
    held |= (codes[j] & mask) << filled;
    for (filled += bits; filled >= 8; filled -= 8, held >>= 8) *bytes++ = static_cast<uint8_t>(held);
  }
  if (filled > 0) *bytes = static_cast<uint8_t>(held);
}

void unpack_codes(const uint8_t* bytes, int64_t count, int bits, uint8_t* codes) {
  const uint32_t mask = (uint32_t{1} << bits) - 1;
  uint32_t held = 0;
  int left = 0;  // bits that wait in `held`
  for (int64_t j = 0; j < count; ++j, held >>= bits, left -= bits) {
    for (; left < bits; left += 8) held |= uint32_t{*bytes++} << left;
    codes[j] = static_cast<uint8_t>(held & mask);
  }
}

}  // namespace kvarena::kernels
