#include "kernels/quantize/quantize.h"

#include <cmath>
#include <vector>

#include "kernels/common/parallel.h"

namespace kvarena::kernels {
namespace {

void require_valid(const PackedEntries& p) {
  const QuantFormat& f = p.format;
  require(f.bits == 1 || f.bits == 2 || f.bits == 3 || f.bits == 4 || f.bits == 8, "quantize: bits must be 1-4 or 8");
  require(f.meta != DType::f32, "quantize: scale and zero are stored in 16 bits");
  require(f.zero_point == ZeroPoint::minimum || f.bits == 1, "quantize: midpoint style is for 1 bit");
  require(p.head_dim > 0 && p.head_dim % kCell == 0, "quantize: head_dim must be a positive multiple of 16");
  require(f.group_size > 0 && f.group_size % kCell == 0, "quantize: group_size must be a positive multiple of 16");
  require(p.kind == CellKind::keys || p.head_dim % f.group_size == 0,
          "quantize: head_dim of values must be a multiple of group_size");
}

/// Ties to even for |x| < 2^22, without a library call.
float round_even(float x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
  return (x + kMagic) - kMagic;
}

float rounded(float x, DType meta) { return half_to_f32(f32_to_half(x, meta), meta); }

/// Where code j of one lane begins, as a bit of the cell's planes.
struct Place {
  int64_t dword;  // of this lane, index into codes
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
  if (p.kind == CellKind::keys) return entry / group * p.head_dim + channel;
  return (entry / kCell * (p.head_dim / group) + channel / group) * kCell + entry % kCell;
}

void put_meta(const PackedEntries& p, int64_t at, GroupMeta meta) {
  p.scale[at] = f32_to_half(meta.scale, p.format.meta);
  p.zero[at] = f32_to_half(meta.zero, p.format.meta);
}

void encode_key_group(const PackedEntries& to, int64_t first, const float* rows, int64_t row_stride) {
  const int64_t group = to.format.group_size;
  static thread_local Scratch<uint8_t> scratch;
  uint8_t* codes = scratch.get(group);
  for (int64_t c = 0; c < to.head_dim; ++c) {
    put_meta(to, meta_index(to, first, c), quantize_group(rows + c, group, row_stride, to.format, codes));
    for (int64_t e = 0; e < group; ++e) put_code(to, first + e, c, codes[e]);
  }
}

void encode_value_row(const PackedEntries& to, int64_t entry, const float* row) {
  const int64_t group = to.format.group_size;
  static thread_local Scratch<uint8_t> scratch;
  uint8_t* codes = scratch.get(group);
  for (int64_t c = 0; c < to.head_dim; c += group) {
    put_meta(to, meta_index(to, entry, c), quantize_group(row + c, group, 1, to.format, codes));
    for (int64_t i = 0; i < group; ++i) put_code(to, entry, c + i, codes[i]);
  }
}

}  // namespace

GroupMeta quantize_group(const float* x, int64_t count, int64_t stride, const QuantFormat& format, uint8_t* codes) {
  if (count == 0) return {};
  float low = x[0], high = x[0];
  for (int64_t i = 1; i < count; ++i) {
    low = std::min(low, x[i * stride]);
    high = std::max(high, x[i * stride]);
  }
  const auto steps = static_cast<float>((1 << format.bits) - 1);
  const bool midpoint = format.zero_point == ZeroPoint::midpoint;
  GroupMeta meta;
  meta.zero = rounded(midpoint ? (3 * low + high) / 4 : low, format.meta);
  meta.scale = rounded(midpoint ? (high - low) / 2 : (high - low) / steps, format.meta);
  if (meta.scale == 0) {
    meta.scale = 1;
    if (midpoint) meta.zero = rounded(low, format.meta);
    std::fill_n(codes, count, uint8_t{0});
    return meta;
  }
  for (int64_t i = 0; i < count; ++i) {
    const float t = (x[i * stride] - meta.zero) / meta.scale;
    const float clamped = t > 0 ? (t < steps ? t : steps) : 0.0f;  // NaN becomes 0
    codes[i] = static_cast<uint8_t>(round_even(clamped));
  }
  return meta;
}

void encode_rows(const PackedEntries& to, int64_t position, int64_t count, const float* rows, int64_t row_stride) {
  require_valid(to);
  const int64_t group = to.format.group_size;
  if (to.kind == CellKind::keys) {
    require(position % group == 0 && count % group == 0, "encode_rows: keys are encoded in whole groups");
    return parallel_for(count / group, [&](int64_t g) {
      encode_key_group(to, position + g * group, rows + g * group * row_stride, row_stride);
    });
  }
  // By cells: entries of one cell share dwords.
  const int64_t first_cell = position / kCell, cells = count == 0 ? 0 : (position + count - 1) / kCell - first_cell + 1;
  parallel_for(cells, [&](int64_t i) {
    const int64_t begin = std::max(position, (first_cell + i) * kCell);
    const int64_t end = std::min(position + count, (first_cell + i + 1) * kCell);
    for (int64_t e = begin; e < end; ++e) encode_value_row(to, e, rows + (e - position) * row_stride);
  });
}

void decode_rows(const PackedEntries& from, int64_t position, int64_t count, float* rows, int64_t row_stride) {
  require_valid(from);
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t c = 0; c < from.head_dim; ++c) {
      const int64_t at = meta_index(from, position + r, c);
      const float scale = half_to_f32(from.scale[at], from.format.meta);
      const float zero = half_to_f32(from.zero[at], from.format.meta);
      rows[r * row_stride + c] = std::fma(scale, static_cast<float>(get_code(from, position + r, c)), zero);
    }
  }
}

void gather_packed_values(const PackedEntries& from, const int32_t* index, int64_t count, const PackedEntries& to,
                          int64_t position) {
  require_valid(from);
  require(from.kind == CellKind::values && to.kind == CellKind::values && from.head_dim == to.head_dim &&
              from.format.bits == to.format.bits && from.format.group_size == to.format.group_size &&
              from.format.meta == to.format.meta,
          "gather_packed_values: runs of different kinds");
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t c = 0; c < from.head_dim; ++c) put_code(to, position + i, c, get_code(from, index[i], c));
    for (int64_t c = 0; c < from.head_dim; c += from.format.group_size) {
      const int64_t source = meta_index(from, index[i], c), target = meta_index(to, position + i, c);
      to.scale[target] = from.scale[source];
      to.zero[target] = from.zero[source];
    }
  }
}

void pack_codes(const uint8_t* codes, int64_t count, int bits, uint8_t* bytes) {
  std::fill_n(bytes, (count * bits + 7) / 8, uint8_t{0});
  for (int64_t j = 0; j < count; ++j) {
    for (int b = 0; b < bits; ++b) {
      const int64_t bit = j * bits + b;
      bytes[bit / 8] |= static_cast<uint8_t>((codes[j] >> b & 1) << (bit % 8));
    }
  }
}

void unpack_codes(const uint8_t* bytes, int64_t count, int bits, uint8_t* codes) {
  for (int64_t j = 0; j < count; ++j) {
    codes[j] = 0;
    for (int b = 0; b < bits; ++b) {
      const int64_t bit = j * bits + b;
      codes[j] |= static_cast<uint8_t>((bytes[bit / 8] >> (bit % 8) & 1) << b);
    }
  }
}

}  // namespace kvarena::kernels
