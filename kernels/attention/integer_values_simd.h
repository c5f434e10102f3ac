#pragma once
// Per-path internal: attention's sums over packed values, in integers. Weights times scale are rounded under one step
// for the cells 4k .. 4k+3 (kIntegerCells) that one chunk touches: cells are counted from the start of the run, so what
// else is in the call does not matter. A weight is rounded by at most 2^-16 of the largest of its 64 neighbours. Where
// one of these has more than an eighth of the row's weight in the chunk (a sink does), what rounding left over is
// rounded and multiplied in turn: 2^-32.

#include "kernels/attention/attention_paths.h"
#include "kernels/cells/touch_simd.h"
#include "kernels/quantize/integer_simd.h"

namespace kvarena::kernels {
namespace {

KVARENA_INLINE bool multiplies_values_as_integers(const PackedEntries& values) {
  return !values.exact && has_integer_levels(values.format) &&
         (values.head_dim == 4 * kLanes || values.head_dim == 8 * kLanes);
}

/// Codes are prefetched this many cells ahead: a cell takes a seventh of the time of a read from memory.
constexpr int64_t kAheadCells = 8;

/// Entries of a dword of codes, and how far apart the two are that share a pair; one entry a dword pairs with the next.
template <int BITS, int VECS>
struct ValuePairs {
  static constexpr int entries = 32 / (BITS * VECS);
  static constexpr int apart = entries > 1 ? entries / 2 : 1;
};

/// Weights of up to kIntegerCells cells while they are made: for each group of channels g and row r
///   weights [g][r][kIntegerCells][16]  lane = entry of the cell; then the pairs of its rounded entries
///   largest [g][r][16]                 of the weights' magnitudes by lanes
///   step    [g][r]
struct IntegerWeights {
  float *weights, *largest, *step;
  int64_t rows;
  float *rest, *rest_step;  // likewise of what rounding left over
  bool has_rest;            // whether any row has more than zeros there
  [[nodiscard]] KVARENA_INLINE int64_t at(int64_t group, int64_t row) const { return group * rows + row; }
};

/// Parts of a step that the rest is rounded to: half a step, and what floats add to it, fits 16 bits.
constexpr float kRestParts = 60000;
KVARENA_INLINE float rest_step_of(Step step) { return step.step * (1 / kRestParts); }

/// A row's weights of a block above which the rest is computed too; nothing is where no weight of the chunk is: the
/// largest is 1.
KVARENA_INLINE float rest_above(const ChunkArgs& args, int64_t row) { return args.sum[row] * 0.125f; }
KVARENA_INLINE bool may_have_rest(const ChunkArgs& args, int64_t row) { return rest_above(args, row) < 1; }

/// Rounds w [count] to pairs at `to`, and with REST what that leaves at `rest`; takes back the middle code's part from
/// `total`.
template <int APART, bool REST>
KVARENA_INLINE F32x16 round_cells(const F32x16* w, int count, Step step, float middle, float* to, float* rest,
                                  F32x16 total) {
  const F32x16 inverse = set16(step.inverse), minus = set16(-step.step);
  const F32x16 rest_inverse = set16(step.inverse * kRestParts);
  U32x16 sum = bits_of(zero16()), rest_sum = sum;
#pragma GCC unroll 4
  for (int t = 0; t < count; ++t) {
    const U32x16 all = integers(mul(w[t], inverse));
    sum = add(sum, all);
    store16(to + t * kLanes, bits_of(pair_lanes<APART>(all)));
    if constexpr (REST) {
      const U32x16 left = integers(mul(fma(minus, numbers(all), w[t]), rest_inverse));
      rest_sum = add(rest_sum, left);
      store16(rest + t * kLanes, bits_of(pair_lanes<APART>(left)));
    }
  }
  total = fma(set16(-middle * step.step), numbers(sum), total);
  if constexpr (REST) total = fma(set16(-middle * rest_step_of(step)), numbers(rest_sum), total);
  return total;
}

/// The lanes of a touched cell that a row sees, and their probabilities.
struct SeenLanes {
  F32x16 p;
  Mask16 seen;
  bool all;
};
KVARENA_INLINE SeenLanes seen_lanes(const ChunkArgs& args, const Touch& touch, int64_t row, int64_t limit) {
  const float* scores = args.scores + row * kChunk + touch.position;
  const int64_t low = args.low[row] - touch.position, high = min_of(args.high[row], limit) - touch.position;
  if (touch.count == kCell) {
    const Mask16 seen = and_not(first_lanes(high), first_lanes(low));
    return {load16(scores, seen), seen, low <= 0 && high >= kCell};
  }
  alignas(64) float p[kLanes] = {}, listed[kLanes] = {};
  for (int64_t i = max_of(0, low); i < min_of(touch.count, high); ++i) {
    const int64_t lane = args.index[args.first + touch.position + i] % kCell;
    p[lane] = scores[i];
    listed[lane] = 1;
  }
  return {load16(p), less(zero16(), load16(listed)), false};
}

/// Weights of touched cell number t of a block, and what the middle codes add: zeros [rows][groups][16].
template <class M>
KVARENA_INLINE void weigh_cell(const ChunkArgs& args, const Touch& touch, int t, int64_t limit,
                               const IntegerWeights& to, float* zeros) {
  const PackedEntries& values = *args.packed_values;
  const int64_t groups = args.value_dim / values.format.group_size;
  const F32x16 level = set16(level_shift(values.format).level);
  for (int64_t row = 0; row < args.rows; ++row) {
    const SeenLanes lanes = seen_lanes(args, touch, row, limit);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t meta = (touch.cell * groups + g) * kCell, at = to.at(g, row);
      const F32x16 scale = meta_lanes<M>(values.scale, meta, 1);
      const F32x16 zero = meta_lanes<M>(values.zero, meta, 0);
      float* z = zeros + (row * groups + g) * kLanes;
      F32x16 w = mul(lanes.p, scale), sum = fma(lanes.p, fma(level, scale, zero), load16(z));
      if (!lanes.all) {  // what lies beyond the last entry may be NaN
        w = select(lanes.seen, w, zero16());
        sum = select(lanes.seen, sum, load16(z));
      }
      store16(z, sum);
      store16(to.weights + (at * kIntegerCells + t) * kLanes, w);
      float* largest = to.largest + at * kLanes;
      store16(largest, max(load16(largest), abs16(w)));
    }
  }
}

/// Rounds the weights of `count` cells to pairs.
template <int APART>
KVARENA_INLINE void round_weights(const ChunkArgs& args, const Touch* touches, int count, int64_t limit,
                                  IntegerWeights& to, float* zeros) {
  const int64_t groups = args.value_dim / args.packed_values->format.group_size;
  const float middle = level_shift(args.packed_values->format).code;
  for (int64_t row = 0; row < args.rows; ++row) {
    F32x16 most = zero16();
    for (int t = 0; t < count && may_have_rest(args, row); ++t) {
      most = max(most, seen_lanes(args, touches[t], row, limit).p);
    }
    const bool has_rest = may_have_rest(args, row) && max_lanes(most) > rest_above(args, row);
    to.has_rest = to.has_rest || has_rest;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t at = to.at(g, row), cells = at * kIntegerCells * kLanes;
      const Step step = step_of(max_lanes(load16(to.largest + at * kLanes)));
      F32x16 w[kIntegerCells];
      for (int t = 0; t < count; ++t) w[t] = load16(to.weights + cells + t * kLanes);
      float* z = zeros + (row * groups + g) * kLanes;
      if (has_rest) {
        store16(z, round_cells<APART, true>(w, count, step, middle, to.weights + cells, to.rest + cells, load16(z)));
      } else {
        store16(z, round_cells<APART, false>(w, count, step, middle, to.weights + cells, nullptr, load16(z)));
      }
      to.step[at] = step.step;
      to.rest_step[at] = has_rest ? rest_step_of(step) : 0;
    }
  }
}

/// Whether every row sees all entries of kIntegerCells whole cells.
KVARENA_INLINE bool sees_whole_block(const ChunkArgs& args, const Touch* touches, int count, int64_t limit) {
  if (count != kIntegerCells) return false;
  const Touch &first = touches[0], &last = touches[kIntegerCells - 1];
  if (last.position - first.position != (kIntegerCells - 1) * kCell || last.count != kCell) return false;
  bool all = last.position + kCell <= limit;
  for (int64_t row = 0; row < args.rows; ++row) {
    all = all && args.low[row] <= first.position && args.high[row] >= last.position + kCell;
  }
  return all;
}

/// weigh_cell() of each cell and round_weights() for a whole block, in registers.
template <class M, int APART>
KVARENA_INLINE void weigh_whole_block(const ChunkArgs& args, const Touch* touches, IntegerWeights& to, float* zeros) {
  const PackedEntries& values = *args.packed_values;
  const int64_t groups = args.value_dim / values.format.group_size;
  const LevelShift shift = level_shift(values.format);
  bool has_rest[kBlockQueryRows];
  for (int64_t row = 0; row < args.rows; ++row) {
    has_rest[row] = false;
    if (!may_have_rest(args, row)) continue;
    const float* scores = args.scores + row * kChunk + touches[0].position;
    F32x16 most = zero16();
    for (int t = 0; t < kIntegerCells; ++t) most = max(most, load16(scores + t * kCell));
    has_rest[row] = max_lanes(most) > rest_above(args, row);
    to.has_rest = to.has_rest || has_rest[row];
  }
  for (int64_t g = 0; g < groups; ++g) {
    F32x16 scale[kIntegerCells], middle[kIntegerCells];
#pragma GCC unroll 4
    for (int t = 0; t < kIntegerCells; ++t) {
      const int64_t meta = (touches[t].cell * groups + g) * kCell, later = meta + kAheadCells * groups * kCell;
      if (values.scale != nullptr) fetch(values.scale + later);
      if (values.zero != nullptr) fetch(values.zero + later);
      const F32x16 zero = meta_lanes<M>(values.zero, meta, 0);
      scale[t] = meta_lanes<M>(values.scale, meta, 1);
      middle[t] = fma(set16(shift.level), scale[t], zero);
    }
    for (int64_t row = 0; row < args.rows; ++row) {
      const float* scores = args.scores + row * kChunk + touches[0].position;
      const int64_t at = to.at(g, row), cells = at * kIntegerCells * kLanes;
      float* z = zeros + (row * groups + g) * kLanes;
      F32x16 w[kIntegerCells], largest = zero16(), total = load16(z);
#pragma GCC unroll 4
      for (int t = 0; t < kIntegerCells; ++t) {
        const F32x16 p = load16(scores + t * kCell);
        w[t] = mul(p, scale[t]);
        total = fma(p, middle[t], total);
        largest = max(largest, abs16(w[t]));
      }
      const Step step = step_of(max_lanes(largest));
      to.step[at] = step.step;
      to.rest_step[at] = has_rest[row] ? rest_step_of(step) : 0;
      if (has_rest[row]) {
        total =
            round_cells<APART, true>(w, kIntegerCells, step, shift.code, to.weights + cells, to.rest + cells, total);
      } else {
        total = round_cells<APART, false>(w, kIntegerCells, step, shift.code, to.weights + cells, nullptr, total);
      }
      store16(z, total);
    }
  }
}

/// Rows row .. row+ROWS-1, the four vectors of channels from V0 on of VECS a value, `count` cells.
template <int BITS, int VECS, int V0, int ROWS, int SHARED>
[[gnu::noinline]] void integer_value_tile(const ChunkArgs& args, int64_t row, const Touch* touches, int count,
                                          const IntegerWeights& from) {
  constexpr int kTile = 4, kEntries = ValuePairs<BITS, VECS>::entries;
  constexpr int64_t kRow = kIntegerCells * kLanes;
  const int64_t group = args.packed_values->format.group_size;
  const int64_t planes = packed_planes(args.value_dim, BITS), cell_size = kCell * planes;
  U32x16 acc[ROWS][kTile];
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kTile; ++v) acc[i][v] = bits_of(zero16());
  }
  for (int t = 0; t < count; ++t) {
    const uint32_t* at = args.packed_values->codes + touches[t].cell * cell_size;
    const float* w[kTile / SHARED];
#pragma GCC unroll 4
    for (int v = 0; v < kTile; v += SHARED) {
      w[v / SHARED] = from.weights + from.at((V0 + v) * kLanes / group, row) * kRow + t * kLanes;
    }
    constexpr int kStep = kEntries > 1 ? kEntries : 2;
    for (int64_t e = 0; e < kCell; e += kStep) {
      const auto products = [&](U32x16 word, int u, int half) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int v = 0; v < kTile; v += SHARED) {
          U32x16 code[SHARED];
#pragma GCC unroll 4
          for (int s = 0; s < SHARED; ++s) code[s] = code_pair<BITS>(word, half + v + s);
#pragma GCC unroll 4
          for (int i = 0; i < ROWS; ++i) {
            const U32x16 weight = repeat_bits(w[v / SHARED] + i * kRow + e + u);
#pragma GCC unroll 4
            for (int s = 0; s < SHARED; ++s) acc[i][v + s] = add_pairs(acc[i][v + s], code[s], weight);
          }
        }
      };
      if constexpr (kEntries > 1) {
        const U32x16 word = load_u32(at);
        if constexpr (V0 == 0) fetch(at + kAheadCells * cell_size);
        at += kLanes;
#pragma GCC unroll 4
        for (int u = 0; u < kEntries / 2; ++u) products(word, u, u * VECS + V0);
      } else {  // the halves of two entries' dwords that hold these channels
        const U32x16 a = load_u32(at), b = load_u32(at + kLanes);
        if constexpr (V0 == 0) fetch(at + kAheadCells * cell_size);
        if constexpr (V0 == 0) fetch(at + kAheadCells * cell_size + kLanes);
        at += 2 * kLanes;
        products(V0 == 0 ? pair(a, b) : either(shift_right(a, 16), masked(b, 0xffff0000)), 0, 0);
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i) {
    float* out = args.out + (row + i) * args.value_dim + V0 * kLanes;
#pragma GCC unroll 4
    for (int v = 0; v < kTile; ++v) {
      const float step = from.step[from.at((V0 + v) * kLanes / group, row + i)];
      store16(out + v * kLanes, fma(numbers(acc[i][v]), set16(step), load16(out + v * kLanes)));
    }
  }
}

template <int BITS, int VECS, int ROWS>
KVARENA_INLINE void integer_value_rows(const ChunkArgs& args, int64_t row, const Touch* touches, int count,
                                       const IntegerWeights& from) {
  if (args.packed_values->format.group_size % (2 * kLanes) == 0) {
    integer_value_tile<BITS, VECS, 0, ROWS, 2>(args, row, touches, count, from);
    if constexpr (VECS == 8) integer_value_tile<BITS, VECS, 4, ROWS, 2>(args, row, touches, count, from);
    return;
  }
  integer_value_tile<BITS, VECS, 0, ROWS, 1>(args, row, touches, count, from);
  if constexpr (VECS == 8) integer_value_tile<BITS, VECS, 4, ROWS, 1>(args, row, touches, count, from);
}

/// Weights of one block's cells.
template <class M, int BITS, int VECS>
void weigh_block(const ChunkArgs& args, const Touch* touches, int count, int64_t limit, IntegerWeights& weights,
                 float* zeros) {
  const int64_t groups = args.value_dim / args.packed_values->format.group_size;
  constexpr int kApart = ValuePairs<BITS, VECS>::apart;
  if (sees_whole_block(args, touches, count, limit)) {
    return weigh_whole_block<M, kApart>(args, touches, weights, zeros);
  }
  for (int64_t i = 0; i < groups * args.rows; ++i) store16(weights.largest + i * kLanes, zero16());
  for (int t = 0; t < count; ++t) weigh_cell<M>(args, touches[t], t, limit, weights, zeros);
  round_weights<kApart>(args, touches, count, limit, weights, zeros);
}

/// All rows over one block's cells.
template <int BITS, int VECS>
void multiply_block(const ChunkArgs& args, const Touch* touches, int count, const IntegerWeights& weights) {
  int64_t row = 0;
#if defined(KVARENA_SIMD_AVX512)
  if (args.rows == 4) return integer_value_rows<BITS, VECS, 4>(args, 0, touches, count, weights);
  for (; row + 3 <= args.rows; row += 3) integer_value_rows<BITS, VECS, 3>(args, row, touches, count, weights);
  if (row + 2 == args.rows) return integer_value_rows<BITS, VECS, 2>(args, row, touches, count, weights);
#endif
  for (; row < args.rows; ++row) integer_value_rows<BITS, VECS, 1>(args, row, touches, count, weights);
}

/// The memory of one block's weights, all = groups * rows of them. The rest of a row without one is any numbers, under
/// a step of 0.
KVARENA_INLINE IntegerWeights weights_at(float* memory, int64_t all, int64_t rows) {
  constexpr int64_t kCells = kIntegerCells * kLanes;
  float* rest = memory + all * kCells;
  float* steps = rest + all * (kCells + kLanes);
  return {memory, rest + all * kCells, steps, rows, rest, steps + all, false};
}

/// value_packed() of formats that multiplies_values_as_integers() names: all touched cells, [rows][groups][16] of what
/// zeros and middle codes add in `zeros`. Few rows have their weights made for several blocks before any is multiplied.
template <class M, int BITS, int VECS>
void integer_values_of(const ChunkArgs& args, const Touch* touches, int n, int64_t limit, float* work, float* zeros) {
  const int64_t all = args.value_dim / args.packed_values->format.group_size * args.rows;
  const int64_t block_floats = all * kIntegerWeightFloats;
  const int most = args.rows <= kFewRows ? kIntegerBlocks : 1;
  for (int t = 0; t < n;) {
    int first[kIntegerBlocks + 1] = {t}, blocks = 0;
    IntegerWeights weights[kIntegerBlocks];
    for (; blocks < most && t < n; ++blocks) {
      while (t < n && touches[t].cell / kIntegerCells == touches[first[blocks]].cell / kIntegerCells) ++t;
      first[blocks + 1] = t;
      float* own = work + blocks * block_floats;
      weights[blocks] = weights_at(own, all, args.rows);
      weigh_block<M, BITS, VECS>(args, touches + first[blocks], t - first[blocks], limit, weights[blocks], zeros);
    }
    for (int b = 0; b < blocks; ++b) {
      multiply_block<BITS, VECS>(args, touches + first[b], first[b + 1] - first[b], weights[b]);
      if (!weights[b].has_rest) continue;
      const IntegerWeights rest{weights[b].rest, nullptr, weights[b].rest_step, args.rows};
      multiply_block<BITS, VECS>(args, touches + first[b], first[b + 1] - first[b], rest);
    }
  }
}

template <class M>
void integer_values(const ChunkArgs& args, const Touch* touches, int n, int64_t limit, float* work, float* zeros) {
  const bool wide = args.value_dim == 8 * kLanes;
  switch (args.packed_values->format.bits) {
    case 1:
      if (wide) return integer_values_of<M, 1, 8>(args, touches, n, limit, work, zeros);
      return integer_values_of<M, 1, 4>(args, touches, n, limit, work, zeros);
    case 2:
      if (wide) return integer_values_of<M, 2, 8>(args, touches, n, limit, work, zeros);
      return integer_values_of<M, 2, 4>(args, touches, n, limit, work, zeros);
    default:
      if (wide) return integer_values_of<M, 4, 8>(args, touches, n, limit, work, zeros);
      return integer_values_of<M, 4, 4>(args, touches, n, limit, work, zeros);
  }
}

}  // namespace
}  // namespace kvarena::kernels
