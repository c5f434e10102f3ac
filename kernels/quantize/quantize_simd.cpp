// A cell's codes to numbers: levels first, lane by lane as they lie, then scale and zero in place.
#include "kernels/quantize/levels_simd.h"
#include "kernels/quantize/quantize_paths.h"

namespace kvarena::kernels {
namespace {

/// Exactly head_dim codes a lane (unpack_lanes writes in steps of 32).
template <class C>
void unpack_cell(const uint32_t* planes, int64_t head_dim, const LevelTable& table, float* out) {
  const int64_t whole = head_dim / 32 * 32;
  if (whole > 0) unpack_lanes<C>(planes, whole, table, out);
  unpack_some<C>(planes, whole, head_dim - whole, table, out + whole * kLanes);
}

template <class M>
void finish_channels(const PackedEntries& from, int64_t cell, float* out) {
  const int64_t d = from.head_dim, row = cell * kCell / from.format.group_size * d;
  for (int64_t c = 0; c < d; c += kLanes) {
    alignas(64) float scale[kLanes], zero[kLanes];
    store16(scale, meta_lanes<M>(from.scale, row + c, 1));
    store16(zero, meta_lanes<M>(from.zero, row + c, 0));
    for (int64_t i = 0; i < kLanes; ++i) {
      float* x = out + (c + i) * kLanes;
      store16(x, fma(set16(scale[i]), load16(x), set16(zero[i])));
    }
  }
}

template <class M>
void finish_tokens(const PackedEntries& from, int64_t cell, float* out) {
  const int64_t d = from.head_dim, group = from.format.group_size, groups = d / group;
  for (int64_t g = 0; g < groups; ++g) {
    const F32x16 scale = meta_lanes<M>(from.scale, (cell * groups + g) * kCell, 1);
    const F32x16 zero = meta_lanes<M>(from.zero, (cell * groups + g) * kCell, 0);
    if (from.kind == CellKind::keys) {
      for (int64_t c = g * group; c < (g + 1) * group; ++c) {
        store16(out + c * kLanes, fma(scale, load16(out + c * kLanes), zero));
      }
      continue;
    }
    alignas(64) float scales[kLanes], zeros[kLanes];
    store16(scales, scale);
    store16(zeros, zero);
    for (int64_t e = 0; e < kCell; ++e) {
      for (int64_t c = g * group; c < (g + 1) * group; c += kLanes) {
        float* x = out + e * d + c;
        store16(x, fma(set16(scales[e]), load16(x), set16(zeros[e])));
      }
    }
  }
}

template <class M>
void finish(const PackedEntries& from, int64_t cell, float* out) {
  if (groups_in_tokens(from.kind, from.format)) return finish_tokens<M>(from, cell, out);
  finish_channels<M>(from, cell, out);
}

void decode_cell(const PackedEntries& from, int64_t cell, float* out) {
  const LevelTable table = level_table(from.format);
  const uint32_t* planes = from.codes + cell * packed_planes(from.head_dim, from.format.bits) * kLanes;
  with_code(from.format, [&](auto code) { unpack_cell<decltype(code)>(planes, from.head_dim, table, out); });
  if (from.scale == nullptr && from.zero == nullptr) return;
  with_meta(from.format, [&](auto meta) { finish<decltype(meta)>(from, cell, out); });
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const QuantizeTable quantize_table;
const QuantizeTable quantize_table = {decode_cell};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
