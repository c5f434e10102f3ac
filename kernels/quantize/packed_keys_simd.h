#pragma once
// Per-path internal: dot products of query rows with packed keys.
//
// Where registers do not suffice, the codes of a cell go through the first-level cache as floats: unpacking (shift,
// look-up, store) is done once for all query rows. Scale and zero never meet the codes: keys grouped along tokens have
// the query scaled once per group of entries, keys grouped along channels have each group's sum scaled. Formats with
// integer levels of few bits go another way (integer_keys_simd.h).

#include "kernels/cells/touch_simd.h"
#include "kernels/quantize/integer_keys_simd.h"
#include "kernels/quantize/levels_simd.h"
#include "kernels/quantize/packed_work.h"

namespace kvarena::kernels {
namespace {

/// Query rows times scale, and their products with zero, for one group of entries.
template <class M>
KVARENA_INLINE float scale_query(const float* q, const uint16_t* scale, const uint16_t* zero, int64_t n, float* out) {
  for (int64_t c = 0; c < n; c += kLanes) store16(out + c, mul(load16(q + c), meta_lanes<M>(scale, c, 1)));
  if constexpr (!kByteScales<M>) {
    if (zero != nullptr) return dot_lanes(q, M{}, zero, n);
  }
  return 0;
}

/// The levels of CELLS touched cells, [CELLS][whole_codes(head_dim)][16].
template <int CELLS>
void unpack_keys(const PackedEntries& keys, const Touch* touches, float* codes) {
  const int64_t d = keys.head_dim, planes = packed_planes(d, keys.format.bits);
  const LevelTable table = level_table(keys.format);
  with_code(keys.format, [&](auto code) {
    for (int j = 0; j < CELLS; ++j) {
      unpack_lanes<decltype(code)>(keys.codes + touches[j].cell * planes * kLanes, d, table,
                                   codes + j * whole_codes(d) * kLanes);
    }
  });
}

/// Input of a tile of query rows and cells: CELLS cells either as they lie or as unpacked levels, and for each of them
/// its own queries [ROWS][head_dim].
template <int CELLS>
struct TileSource {
  int64_t head_dim;
  const float* q[CELLS];
  const float* levels;            // [CELLS][whole_codes(head_dim)][16], or null:
  const uint32_t* planes[CELLS];  // as they lie
  LevelTable table;
};

/// Whether codes of this width meet this many rows in registers: where dwords hold whole codes.
KVARENA_INLINE bool fuses(int bits, int64_t rows) {
#if defined(KVARENA_SIMD_AVX512)
  return 32 % bits == 0 && rows <= kFusedRows;
#else
  return bits < 0 && rows < 0;  // never: sixteen registers do not hold words, codes and sums
#endif
}
/// Whether keys of this format meet this many rows in registers: groups along channels must begin with a dword of their
/// own.
KVARENA_INLINE bool fuses_keys(const PackedEntries& keys, int64_t rows) {
  const QuantFormat& f = keys.format;
  if (multiplies_keys_as_integers(keys)) return true;
  return fuses(f.bits, rows) && (!f.token_groups || f.group_size == keys.head_dim || f.group_size * f.bits % 32 == 0);
}

/// acc[i][j] = sum over channels begin .. end-1, ascending, of query times level, from 0.
template <int ROWS, int CELLS>
[[gnu::noinline]] void add_unpacked(const TileSource<CELLS>& source, int64_t begin, int64_t end,
                                    F32x16 (&acc)[ROWS][CELLS]) {
  F32x16 sum[ROWS][CELLS];
#pragma GCC unroll 6
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) sum[i][j] = zero16();
  }
  const int64_t d = source.head_dim, cell_size = whole_codes(d) * kLanes;
  for (int64_t c = begin; c < end; ++c) {
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) {
      const F32x16 k = load16(source.levels + j * cell_size + c * kLanes);
#pragma GCC unroll 6
      for (int i = 0; i < ROWS; ++i) sum[i][j] = fma(set16(source.q[j][i * d + c]), k, sum[i][j]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) acc[i][j] = sum[i][j];
  }
}

/// add_unpacked() with levels kept in registers.
template <class C, int ROWS, int CELLS>
[[gnu::noinline]] void add_fused(const TileSource<CELLS>& source, int64_t begin, int64_t end,
                                 F32x16 (&acc)[ROWS][CELLS]) {
  constexpr int kPer = 32 / C::bits;
  F32x16 sum[ROWS][CELLS];
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) sum[i][j] = zero16();
  }
  const LevelTable table = source.table;
  const int64_t d = source.head_dim;
  const float* q[CELLS];
  const uint32_t* planes[CELLS];
  for (int j = 0; j < CELLS; ++j) q[j] = source.q[j];
  for (int j = 0; j < CELLS; ++j) planes[j] = source.planes[j] + begin / kPer * kLanes;
  const int64_t ahead = CELLS * packed_planes(d, C::bits) * kLanes;
  int64_t c = begin;
  for (; c + kPer <= end; c += kPer) {
    U32x16 word[CELLS];
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) {
      word[j] = load_u32(planes[j]);
      planes[j] += kLanes;
      fetch(planes[j] + ahead);
    }
#pragma GCC unroll 32
    for (int s = 0; s < kPer; ++s) {
#pragma GCC unroll 4
      for (int j = 0; j < CELLS; ++j) {
        const F32x16 k = level_of_lanes<C>(shift_right(word[j], C::bits * s), table);
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; ++i) sum[i][j] = fma(set16(q[j][i * d + c + s]), k, sum[i][j]);
      }
    }
  }
  for (int s = 0; c + s < end; ++s) {  // half a word: 1 bit and an odd multiple of 16 channels
    for (int j = 0; j < CELLS; ++j) {
      const F32x16 k = level_of_lanes<C>(shift_right(load_u32(planes[j]), C::bits * s), table);
      for (int i = 0; i < ROWS; ++i) sum[i][j] = fma(set16(q[j][i * d + c + s]), k, sum[i][j]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) acc[i][j] = sum[i][j];
  }
}

template <int ROWS, int CELLS>
KVARENA_INLINE void add_products(const QuantFormat& format, const TileSource<CELLS>& source, int64_t begin, int64_t end,
                                 F32x16 (&acc)[ROWS][CELLS]) {
#if defined(KVARENA_SIMD_AVX512)
  if constexpr (ROWS <= kFusedRows) {
    if (source.levels == nullptr) {
      switch (format.bits) {
        case 1: return add_fused<Code<1, Levels::codebook>, ROWS, CELLS>(source, begin, end, acc);
        case 2: return add_fused<Code<2, Levels::codebook>, ROWS, CELLS>(source, begin, end, acc);
        case 4: return add_fused<Code<4, Levels::codebook>, ROWS, CELLS>(source, begin, end, acc);
        default: break;
      }
      switch (format.levels) {
        case Levels::e4m3: return add_fused<Code<8, Levels::e4m3>, ROWS, CELLS>(source, begin, end, acc);
        case Levels::e5m2: return add_fused<Code<8, Levels::e5m2>, ROWS, CELLS>(source, begin, end, acc);
        case Levels::codebook: return add_fused<Code<8, Levels::codebook>, ROWS, CELLS>(source, begin, end, acc);
        default: return add_fused<Code<8, Levels::uniform>, ROWS, CELLS>(source, begin, end, acc);
      }
    }
  }
#else
  (void)format;
#endif
  add_unpacked<ROWS, CELLS>(source, begin, end, acc);
}

/// Keys grouped along tokens: the queries are scaled, bias is what zeros add.
template <int ROWS, int CELLS, class Sink>
void channel_tile(const PackedEntries& keys, const TileSource<CELLS>& source, const float (&bias)[CELLS][kPackedRows],
                  const Sink& sink) {
  F32x16 acc[ROWS][CELLS];
  add_products<ROWS, CELLS>(keys.format, source, 0, source.head_dim, acc);
#pragma GCC unroll 6
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) sink(i, j, add(acc[i][j], set16(bias[j][i])));
  }
}

/// The sum of a group of queries by 16 lanes and the fixed tree.
KVARENA_INLINE float sum_of(const float* q, int64_t n) {
  F32x16 sum = load16(q);
  for (int64_t c = kLanes; c < n; c += kLanes) sum = add(sum, load16(q + c));
  return sum_lanes(sum);
}

/// Keys grouped along channels: group by group the sum is scaled, and the group's sum of queries times zero added.
template <class M, int ROWS, int CELLS, class Sink>
void token_tile(const PackedEntries& keys, const TileSource<CELLS>& source, const Touch* touches, const Sink& sink) {
  const int64_t d = source.head_dim, group = keys.format.group_size, groups = d / group;
  F32x16 total[ROWS][CELLS];
  for (auto& row : total) {
    for (auto& t : row) t = zero16();
  }
  for (int64_t g = 0; g < groups; ++g) {
    F32x16 acc[ROWS][CELLS];
    add_products<ROWS, CELLS>(keys.format, source, g * group, (g + 1) * group, acc);
    float sums[ROWS];
    for (int i = 0; i < ROWS; ++i) sums[i] = keys.zero != nullptr ? sum_of(source.q[0] + i * d + g * group, group) : 0;
    for (int j = 0; j < CELLS; ++j) {
      const int64_t at = (touches[j].cell * groups + g) * kCell;
      const F32x16 scale = meta_lanes<M>(keys.scale, at, 1);
      for (int i = 0; i < ROWS; ++i) total[i][j] = fma(acc[i][j], scale, total[i][j]);
      if (keys.zero == nullptr) continue;
      const F32x16 zero = meta_lanes<M>(keys.zero, at, 0);
      for (int i = 0; i < ROWS; ++i) total[i][j] = fma(set16(sums[i]), zero, total[i][j]);
    }
  }
  for (int i = 0; i < ROWS; ++i) {
    for (int j = 0; j < CELLS; ++j) sink(i, j, total[i][j]);
  }
}

template <class M, int ROWS, int CELLS, class Sink>
KVARENA_INLINE void key_tile(const PackedEntries& keys, const TileSource<CELLS>& source, const Touch* touches,
                             const float (&bias)[CELLS][kPackedRows], const Sink& sink) {
  if (keys.format.token_groups) return token_tile<M, ROWS, CELLS>(keys, source, touches, sink);
  channel_tile<ROWS, CELLS>(keys, source, bias, sink);
}

/// The queries of each cell in `queries` [CELLS][kPackedRows][head_dim], shared where cells share a group; bias.
template <class M, int CELLS>
void prepare_queries(const PackedEntries& keys, const float* const* q, int64_t rows, const Touch* touches,
                     float* queries, TileSource<CELLS>& source, float (&bias)[CELLS][kPackedRows]) {
  const int64_t d = keys.head_dim;
  if (keys.format.token_groups) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t c = 0; c < d; c += kLanes) store16(queries + i * d + c, load16(q[i] + c));
    }
    for (int j = 0; j < CELLS; ++j) source.q[j] = queries;
    return;
  }
  int64_t previous = -1;
  for (int j = 0; j < CELLS; ++j) {
    const int64_t group = touches[j].cell * kCell / keys.format.group_size;
    if (j > 0 && group == previous) {
      source.q[j] = source.q[j - 1];
      for (int64_t i = 0; i < rows; ++i) bias[j][i] = bias[j - 1][i];
      continue;
    }
    previous = group;
    float* to = queries + j * kPackedRows * d;
    source.q[j] = to;
    const uint16_t* scale = keys.scale == nullptr ? nullptr : keys.scale + group * d;
    const uint16_t* zero = keys.zero == nullptr ? nullptr : keys.zero + group * d;
    for (int64_t i = 0; i < rows; ++i) bias[j][i] = scale_query<M>(q[i], scale, zero, d, to + i * d);
  }
}

template <class M, int CELLS, class Sink>
void dot_packed_meta(const PackedEntries& keys, const float* const* q, int64_t rows, const Touch* touches,
                     const float* levels, float* queries, const Sink& sink) {
  TileSource<CELLS> source{};
  source.head_dim = keys.head_dim;
  source.levels = levels;
  float bias[CELLS][kPackedRows] = {};
  prepare_queries<M, CELLS>(keys, q, rows, touches, queries, source, bias);
  if (levels == nullptr) {
    source.table = level_table(keys.format);
    for (int j = 0; j < CELLS; ++j) {
      source.planes[j] = keys.codes + touches[j].cell * packed_planes(keys.head_dim, keys.format.bits) * kLanes;
    }
  }
  switch (rows) {
    case 1: return key_tile<M, 1, CELLS>(keys, source, touches, bias, sink);
    case 2: return key_tile<M, 2, CELLS>(keys, source, touches, bias, sink);
    case 3: return key_tile<M, 3, CELLS>(keys, source, touches, bias, sink);
    case 4: return key_tile<M, 4, CELLS>(keys, source, touches, bias, sink);
    case 5: return key_tile<M, 5, CELLS>(keys, source, touches, bias, sink);
    default: return key_tile<M, 6, CELLS>(keys, source, touches, bias, sink);
  }
}

/// Up to kPackedRows query rows against CELLS touched cells. `levels` holds what unpack_keys() wrote, or is null where
/// fuses_keys() says so. `queries` is scratch of CELLS * kPackedRows * whole_codes(head_dim) floats.
template <int CELLS, class Sink>
void dot_packed(const PackedEntries& keys, const float* const* q, int64_t rows, const Touch* touches,
                const float* levels, float* queries, const Sink& sink) {
  if (multiplies_keys_as_integers(keys)) return dot_integer<CELLS>(keys, q, rows, touches, queries, sink);
  with_meta(keys.format,
            [&](auto meta) { dot_packed_meta<decltype(meta), CELLS>(keys, q, rows, touches, levels, queries, sink); });
}

}  // namespace
}  // namespace kvarena::kernels
