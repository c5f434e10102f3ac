// Attention scores over packed keys and sums over packed values. As with keys, the codes of a cell of values are
// unpacked once for all rows, and weights are scaled once per entry and group of channels. Integer levels of few bits
// go another way (integer_values_simd.h).

#include "kernels/attention/attention_paths.h"
#include "kernels/attention/integer_values_simd.h"
#include "kernels/quantize/packed_keys_simd.h"

namespace kvarena::kernels {
namespace {

KVARENA_INLINE void store_packed_score(const ChunkArgs& args, int64_t row, const Touch& touch, F32x16 dot) {
  float* to = args.scores + row * kChunk + touch.position;
  store_listed(to, args.index, args.first, touch, mul(dot, set16(args.scale)));
}

/// Scores of all rows against CELLS touched cells of packed keys.
template <int CELLS>
void score_packed(const ChunkArgs& args, const Touch* touches) {
  float* codes = args.work;
  float* queries = codes + kPackedCells * whole_codes(args.head_dim) * kLanes;
  const bool fused = fuses_keys(*args.packed_keys, args.rows);
  if (!fused) unpack_keys<CELLS>(*args.packed_keys, touches, codes);
  for (int64_t row = 0; row < args.rows; row += kPackedRows) {
    const int64_t rows = min_of(kPackedRows, args.rows - row);
    dot_packed<CELLS>(*args.packed_keys, args.q + row, rows, touches, fused ? nullptr : codes, queries,
                      [&](int i, int j, F32x16 dot) { store_packed_score(args, row + i, touches[j], dot); });
  }
}

/// Scores of all rows against CELLS touched cells of packed keys, multiplied as integers.
template <int CELLS>
void score_integers(const ChunkArgs& args, const Touch* touches) {
  for (int64_t row = 0; row < args.rows; row += kPackedRows) {
    const int64_t rows = min_of(kPackedRows, args.rows - row);
    dot_integer<CELLS>(*args.packed_keys, args.q + row, rows, touches, args.work,
                       [&](int i, int j, F32x16 dot) { store_packed_score(args, row + i, touches[j], dot); });
  }
}

int score_packed_cells(const ChunkArgs& args, const Touch* touches, int n) {
  const int64_t packed_cells = cells_for(args.packed_key_count);
  int t = 0;
  const auto all = [&](int count) { return t + count <= n && touches[t + count - 1].cell < packed_cells; };
  if (args.packed_key_count > 0 && multiplies_keys_as_integers(*args.packed_keys)) {
    for (; all(kIntegerCellsAtOnce); t += kIntegerCellsAtOnce) score_integers<kIntegerCellsAtOnce>(args, touches + t);
    for (; all(1); ++t) score_integers<1>(args, touches + t);
    return t;
  }
  for (; all(kPackedCells); t += kPackedCells) score_packed<kPackedCells>(args, touches + t);
  for (; all(1); ++t) score_packed<1>(args, touches + t);
  return t;
}

/// out[row][channels of one group] += sum over the cell's listed entries of weight * code.
template <int ROWS, int VECS>
void packed_value_tile(const ChunkArgs& args, int64_t row, int64_t channel, int64_t entries, const float* codes,
                       const float* weights, int64_t weight_stride) {
  F32x16 acc[ROWS][VECS];
  float* out = args.out + row * args.value_dim + channel;
  for (int i = 0; i < ROWS; ++i) {
    for (int v = 0; v < VECS; ++v) acc[i][v] = load16(out + i * args.value_dim + v * kLanes);
  }
  for (int64_t e = 0; e < entries; ++e) {
    F32x16 x[VECS];
#pragma GCC unroll 4
    for (int v = 0; v < VECS; ++v) x[v] = load16(codes + e * args.value_dim + channel + v * kLanes);
#pragma GCC unroll 3
    for (int i = 0; i < ROWS; ++i) {
      const F32x16 w = set16(weights[i * weight_stride + e]);
#pragma GCC unroll 4
      for (int v = 0; v < VECS; ++v) acc[i][v] = fma(w, x[v], acc[i][v]);
    }
  }
  for (int i = 0; i < ROWS; ++i) {
    for (int v = 0; v < VECS; ++v) store16(out + i * args.value_dim + v * kLanes, acc[i][v]);
  }
}

template <int VECS>
void packed_value_rows(const ChunkArgs& args, int64_t channel, int64_t entries, const float* codes,
                       const float* weights, int64_t weight_stride) {
  int64_t row = 0;
  for (; row + 3 <= args.rows; row += 3) {
    packed_value_tile<3, VECS>(args, row, channel, entries, codes, weights + row * weight_stride, weight_stride);
  }
  for (; row < args.rows; ++row) {
    packed_value_tile<1, VECS>(args, row, channel, entries, codes, weights + row * weight_stride, weight_stride);
  }
}

/// The listed lanes of 16 scales or zeros, moved together.
template <class M>
KVARENA_INLINE F32x16 listed_meta(const uint16_t* meta, int64_t at, float absent, const ChunkArgs& args,
                                  const Touch& touch) {
  const F32x16 all = meta_lanes<M>(meta, at, absent);
  if (meta == nullptr || touch.count == kCell) return all;
  alignas(64) float lanes[kLanes] = {};
  store_listed(lanes, args.index, args.first, touch, all);
  return load16(lanes);
}

/// Four vectors of channels from vector V0 on, of VECS a value, over a whole cell: codes stay in registers.
template <class C, int VECS, int V0, int ROWS>
void fused_value_tile(const ChunkArgs& args, const uint32_t* planes, const float* weights, int64_t group,
                      const LevelTable& levels) {
  constexpr int kPer = 32 / C::bits, kTile = 4;
  const LevelTable table = levels;
  constexpr int kEntries = kPer >= VECS ? kPer / VECS : 1;  // entries that share a dword
  F32x16 acc[ROWS][kTile];
  float* out = args.out + V0 * kLanes;
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kTile; ++v) acc[i][v] = load16(out + i * args.value_dim + v * kLanes);
  }
  const float* w[kTile];
#pragma GCC unroll 4
  for (int v = 0; v < kTile; ++v) w[v] = weights + (V0 + v) * kLanes / group * ROWS * kLanes;
  const int64_t cell_size = packed_planes(args.value_dim, C::bits) * kLanes;
  for (int64_t e = 0; e < kCell; e += kEntries) {
    const uint32_t* at = planes + (e * VECS + (kPer < VECS ? V0 : 0)) / kPer * kLanes;
    const U32x16 word = load_u32(at);
    fetch(at + 2 * cell_size);
#pragma GCC unroll 8
    for (int u = 0; u < kEntries; ++u) {
#pragma GCC unroll 4
      for (int v = 0; v < kTile; ++v) {
        const int code = kPer < VECS ? v : u * VECS + V0 + v;
        const F32x16 x = level_of_lanes<C>(shift_right(word, C::bits * code), table);
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; ++i) acc[i][v] = fma(set16(w[v][i * kLanes + e + u]), x, acc[i][v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kTile; ++v) store16(out + i * args.value_dim + v * kLanes, acc[i][v]);
  }
}

template <class C, int ROWS>
void fused_value_rows(const ChunkArgs& args, const uint32_t* planes, const float* weights, int64_t group,
                      const LevelTable& table) {
  if (args.value_dim == 4 * kLanes) return fused_value_tile<C, 4, 0, ROWS>(args, planes, weights, group, table);
  fused_value_tile<C, 8, 0, ROWS>(args, planes, weights, group, table);
  fused_value_tile<C, 8, 4, ROWS>(args, planes, weights, group, table);
}

template <class C>
void fused_values(const ChunkArgs& args, const uint32_t* planes, const float* weights, int64_t group) {
  const LevelTable table = level_table(args.packed_values->format);
  switch (args.rows) {
    case 1: return fused_value_rows<C, 1>(args, planes, weights, group, table);
    case 2: return fused_value_rows<C, 2>(args, planes, weights, group, table);
    case 3: return fused_value_rows<C, 3>(args, planes, weights, group, table);
    default: return fused_value_rows<C, 4>(args, planes, weights, group, table);
  }
}

/// Weights times scale, and the sums of weights times zero, of one cell: weights [groups][rows][16], zeros
/// [rows][groups][16].
template <class M>
void scale_weights(const ChunkArgs& args, const Touch& touch, int64_t limit, float* weights, float* zeros) {
  const PackedEntries& values = *args.packed_values;
  const int64_t groups = args.value_dim / values.format.group_size;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t at = (touch.cell * groups + g) * kCell;
    const F32x16 scale = listed_meta<M>(values.scale, at, 1, args, touch);
    const F32x16 zero = listed_meta<M>(values.zero, at, 0, args, touch);
    for (int64_t row = 0; row < args.rows; ++row) {
      const int64_t low = args.low[row] - touch.position, high = min_of(args.high[row], limit) - touch.position;
      const Mask16 seen = and_not(first_lanes(min_of(high, touch.count)), first_lanes(low));
      const F32x16 p = load16(args.scores + row * kChunk + touch.position, seen);
      // select: what lies beyond the last entry may be NaN
      store16(weights + (g * args.rows + row) * kLanes, select(seen, mul(p, scale), zero16()));
      float* z = zeros + (row * groups + g) * kLanes;
      store16(z, select(seen, fma(p, zero, load16(z)), load16(z)));
    }
  }
}

/// The codes of a touched cell's listed entries, [count][value_dim].
void unpack_values(const ChunkArgs& args, const Touch& touch, const uint32_t* planes, float* codes) {
  const int64_t vecs = args.value_dim / kLanes;
  const LevelTable table = level_table(args.packed_values->format);
  with_code(args.packed_values->format, [&](auto code) {
    using C = decltype(code);
    if (touch.count == kCell) return unpack_lanes<C>(planes, kCell * vecs, table, codes);
    for (int32_t i = 0; i < touch.count; ++i) {
      const int64_t lane = args.index[args.first + touch.position + i] % kCell;
      unpack_some<C>(planes, lane * vecs, vecs, table, codes + i * args.value_dim);
    }
  });
}

/// One touched cell of packed values, for list positions before `limit`. zeros [rows][groups][16] collects p * lo.
template <class M>
void value_packed_cell(const ChunkArgs& args, const Touch& touch, int64_t limit, float* codes, float* weights,
                       float* zeros) {
  const PackedEntries& values = *args.packed_values;
  const int64_t d = args.value_dim, group = values.format.group_size;
  const uint32_t* planes = values.codes + touch.cell * packed_planes(d, values.format.bits) * kLanes;
  scale_weights<M>(args, touch, limit, weights, zeros);
#if defined(KVARENA_SIMD_AVX512)
  if (touch.count == kCell && fuses(values.format.bits, args.rows) && (d == 4 * kLanes || d == 8 * kLanes)) {
    switch (values.format.bits) {
      case 1: return fused_values<Code<1, Levels::codebook>>(args, planes, weights, group);
      case 2: return fused_values<Code<2, Levels::codebook>>(args, planes, weights, group);
      case 4: return fused_values<Code<4, Levels::codebook>>(args, planes, weights, group);
      default: break;
    }
    switch (values.format.levels) {
      case Levels::e4m3: return fused_values<Code<8, Levels::e4m3>>(args, planes, weights, group);
      case Levels::e5m2: return fused_values<Code<8, Levels::e5m2>>(args, planes, weights, group);
      case Levels::codebook: return fused_values<Code<8, Levels::codebook>>(args, planes, weights, group);
      default: return fused_values<Code<8, Levels::uniform>>(args, planes, weights, group);
    }
  }
#endif
  unpack_values(args, touch, planes, codes);
  for (int64_t channel = 0; channel < d;) {
    const float* w = weights + channel / group * args.rows * kLanes;
    if (channel % group + 2 * kLanes <= group) {
      packed_value_rows<2>(args, channel, touch.count, codes, w, kLanes);
      channel += 2 * kLanes;
    } else {
      packed_value_rows<1>(args, channel, touch.count, codes, w, kLanes);
      channel += kLanes;
    }
  }
}

template <class M>
void add_values_of(const ChunkArgs& args, int64_t begin, int64_t end) {
  const int64_t groups = args.value_dim / args.packed_values->format.group_size;
  float* zeros = args.work;
  float* work = zeros + args.rows * groups * kLanes;
  for (int64_t i = 0; i < args.rows * groups; ++i) store16(zeros + i * kLanes, zero16());
  Touch touches[kChunk];
  const int n = find_touches(args.index, args.first, begin, end, touches);
  if (multiplies_values_as_integers(*args.packed_values)) {
    integer_values<M>(args, touches, n, end, work, zeros);
  } else {
    float* weights = work + whole_codes(args.value_dim) * kCell;
    for (int t = 0; t < n; ++t) value_packed_cell<M>(args, touches[t], end, work, weights, zeros);
  }
  // The zeros' part joins before any 16-bit values of the chunk: ascending order of entries, whatever the rows.
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t c = 0; c < args.value_dim; c += kLanes) {
      const int64_t g = c / args.packed_values->format.group_size;
      const F32x16 sum = set16(sum_lanes(load16(zeros + (row * groups + g) * kLanes)));
      float* out = args.out + row * args.value_dim + c;
      store16(out, add(load16(out), sum));
    }
  }
}

void add_packed_values(const ChunkArgs& args, int64_t begin, int64_t end) {
  with_meta(args.packed_values->format, [&](auto meta) { add_values_of<decltype(meta)>(args, begin, end); });
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const PackedAttentionTable packed_attention_table;
const PackedAttentionTable packed_attention_table = {score_packed_cells, add_packed_values};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
