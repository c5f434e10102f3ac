#pragma once
// Per-path internal: dot products of query rows with packed keys, in integers. Queries times scale are rounded once per
// row and group of entries (groups along tokens), queries once per row and group of channels (groups in tokens).

#include "kernels/cells/touch_simd.h"
#include "kernels/quantize/integer_simd.h"
#include "kernels/quantize/packed_work.h"

namespace kvarena::kernels {
namespace {

#if defined(KVARENA_SIMD_AVX512)
constexpr int kIntegerKeyRows = 4, kIntegerKeyCells = 4;
#else
constexpr int kIntegerKeyRows = 3, kIntegerKeyCells = 1;
#endif

/// Cells whose queries are rounded before any of them is multiplied: a rounding is a chain (maximum, quotient,
/// product), and only several at once fill the time it takes.
constexpr int kIntegerCellsAtOnce = 8;
/// Scales are prefetched this many groups ahead.
constexpr int64_t kAheadGroups = 8;

/// Groups along channels must begin with a dword of their own; a sum of head_dim products must fit 31 bits.
KVARENA_INLINE bool multiplies_keys_as_integers(const PackedEntries& keys) {
  const QuantFormat& f = keys.format;
  return !keys.exact && has_integer_levels(f) && keys.head_dim <= 4096 &&
         (!f.token_groups || f.group_size == keys.head_dim || f.group_size * f.bits % 32 == 0);
}

/// Rounds x [n] under `inverse` into pairs that meet code_pair(): that of channels c and c + 16 / BITS lies at c. In
/// place; n a multiple of 16, and room for a multiple of 32. Returns the integers' sum by lanes.
template <int BITS>
KVARENA_INLINE U32x16 round_queries(float* x, int64_t n, float inverse) {
  const F32x16 by = set16(inverse);
  U32x16 sum = bits_of(zero16());
  if constexpr (BITS == 1) {
    for (int64_t c = 0; c < n; c += 2 * kLanes) {
      const U32x16 low = integers(mul(load16(x + c), by));
      const U32x16 high = c + kLanes < n ? integers(mul(load16(x + c + kLanes), by)) : bits_of(zero16());
      sum = add(sum, add(low, high));
      store16(x + c, bits_of(pair(low, high)));
    }
  } else {
    for (int64_t c = 0; c < n; c += kLanes) {
      const U32x16 all = integers(mul(load16(x + c), by));
      sum = add(sum, all);
      store16(x + c, bits_of(pair_lanes<16 / BITS>(all)));
    }
  }
  return sum;
}

/// Query rows against one group of entries: what a score is made of beside the integer products.
struct GroupQueries {
  const float* pairs;       // [rows][whole_codes(head_dim)]
  float step[kPackedRows];  // score = step * products + rest
  float rest[kPackedRows];
};

/// Scale of a group's 16 channels and what the middle code stands for.
struct ChannelMeta {
  F32x16 scale, middle;
};
template <class M>
KVARENA_INLINE ChannelMeta channel_meta(const PackedEntries& keys, int64_t at, F32x16 level) {
  const F32x16 scale = keys.scale != nullptr ? load16(M{}, keys.scale + at) : set16(1);
  const F32x16 zero = keys.zero != nullptr ? load16(M{}, keys.zero + at) : zero16();
  return {scale, fma(level, scale, zero)};
}

/// Keys grouped along tokens: queries times the group's scales. VECS vectors of channels, which stay in registers.
template <class M, int BITS, int VECS>
[[gnu::noinline]] void round_group_of(const PackedEntries& keys, const float* const* q, int64_t rows, int64_t group,
                                      float* pairs, GroupQueries& to) {
  const LevelShift shift = level_shift(keys.format);
  ChannelMeta meta[VECS];
#pragma GCC unroll 8
  for (int v = 0; v < VECS; ++v) {
    const int64_t at = (group * VECS + v) * kLanes, later = at + kAheadGroups * VECS * kLanes;
    meta[v] = channel_meta<M>(keys, at, set16(shift.level));
    if (v % 2 == 0 && keys.scale != nullptr) fetch(keys.scale + later);
    if (v % 2 == 0 && keys.zero != nullptr) fetch(keys.zero + later);
  }
  for (int64_t i = 0; i < rows; ++i, pairs += VECS * kLanes) {
    F32x16 x[VECS], largest = zero16(), rest = zero16();
#pragma GCC unroll 8
    for (int v = 0; v < VECS; ++v) {
      const F32x16 query = load16(q[i] + v * kLanes);
      x[v] = mul(query, meta[v].scale);
      largest = max(largest, abs16(x[v]));
      rest = fma(query, meta[v].middle, rest);
    }
    const Step step = step_of(max_lanes(largest));
    U32x16 sum = bits_of(zero16()), rounded[VECS];
#pragma GCC unroll 8
    for (int v = 0; v < VECS; ++v) {
      rounded[v] = integers(mul(x[v], set16(step.inverse)));
      sum = add(sum, rounded[v]);
    }
#pragma GCC unroll 8
    for (int v = 0; v < VECS; ++v) {
      if constexpr (BITS == 1) {
        if (v % 2 == 0) store16(pairs + v * kLanes, bits_of(pair(rounded[v], rounded[v + 1])));
      } else {
        store16(pairs + v * kLanes, bits_of(pair_lanes<16 / BITS>(rounded[v])));
      }
    }
    to.step[i] = step.step;
    to.rest[i] = sum_lanes(fma(set16(-shift.code * step.step), numbers(sum), rest));
  }
}

/// Keys grouped along tokens, for any number of channels: queries times the group's scales.
template <class M, int BITS>
void round_group(const PackedEntries& keys, const float* const* q, int64_t rows, int64_t group, float* pairs,
                 GroupQueries& to) {
  const int64_t d = keys.head_dim;
  to.pairs = pairs;
  if (d == 4 * kLanes) return round_group_of<M, BITS, 4>(keys, q, rows, group, pairs, to);
  if (d == 8 * kLanes) return round_group_of<M, BITS, 8>(keys, q, rows, group, pairs, to);
  const LevelShift shift = level_shift(keys.format);
  for (int64_t i = 0; i < rows; ++i, pairs += whole_codes(d)) {
    F32x16 largest = zero16(), rest = zero16();
    for (int64_t c = 0; c < d; c += kLanes) {
      const ChannelMeta meta = channel_meta<M>(keys, group * d + c, set16(shift.level));
      const F32x16 query = load16(q[i] + c), x = mul(query, meta.scale);
      store16(pairs + c, x);
      largest = max(largest, abs16(x));
      rest = fma(query, meta.middle, rest);
    }
    const Step step = step_of(max_lanes(largest));
    const U32x16 sum = round_queries<BITS>(pairs, d, step.inverse);
    to.step[i] = step.step;
    to.rest[i] = sum_lanes(fma(set16(-shift.code * step.step), numbers(sum), rest));
  }
}

/// acc[i][j] = sum over channels begin .. end-1 of integer times code. Queries are shared by SHARED cells side by side.
template <int BITS, int ROWS, int CELLS, int SHARED>
KVARENA_INLINE void integer_products(const uint32_t* const* cells, const float* const* queries, int64_t d,
                                     int64_t begin, int64_t end, U32x16 (&acc)[ROWS][CELLS]) {
  constexpr int kPer = 32 / BITS;
  const int64_t stride = whole_codes(d), ahead = 2 * CELLS * packed_planes(d, BITS) * kLanes;
  const uint32_t* planes[CELLS];
  const float* q[CELLS];
  for (int j = 0; j < CELLS; ++j) planes[j] = cells[j] + begin / kPer * kLanes;
  for (int j = 0; j < CELLS; ++j) q[j] = queries[j];
  U32x16 sum[ROWS][CELLS];
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) sum[i][j] = bits_of(zero16());
  }
  for (int64_t c = begin; c < end; c += kPer) {
    U32x16 word[CELLS];
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) {
      word[j] = load_u32(planes[j]);
      planes[j] += kLanes;
      fetch(planes[j] + ahead);
    }
#pragma GCC unroll 16
    for (int half = 0; half < kPer / 2; ++half) {
      U32x16 code[CELLS];
#pragma GCC unroll 4
      for (int j = 0; j < CELLS; ++j) code[j] = code_pair<BITS>(word[j], half);
#pragma GCC unroll 4
      for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
        for (int j = 0; j < CELLS; j += SHARED) {
          const U32x16 query = repeat_bits(q[j] + i * stride + c + half);
#pragma GCC unroll 4
          for (int s = j; s < j + SHARED; ++s) sum[i][s] = add_pairs(sum[i][s], code[s], query);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) acc[i][j] = sum[i][j];
  }
}

/// Keys grouped along tokens: rows first .. first+ROWS-1 of each cell's queries.
template <int BITS, int ROWS, int CELLS, int SHARED, class Sink>
[[gnu::noinline]] void integer_channel_tile(const PackedEntries& keys, const uint32_t* const* cells,
                                            const GroupQueries* const* queries, int first, int cell, const Sink& sink) {
  const int64_t d = keys.head_dim;
  const float* pairs[CELLS];
  for (int j = 0; j < CELLS; ++j) pairs[j] = queries[j]->pairs + first * whole_codes(d);
  U32x16 acc[ROWS][CELLS];
  integer_products<BITS, ROWS, CELLS, SHARED>(cells, pairs, d, 0, d, acc);
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) {
      const int row = first + i;
      sink(row, cell + j, fma(numbers(acc[i][j]), set16(queries[j]->step[row]), set16(queries[j]->rest[row])));
    }
  }
}

/// Query rows against groups of channels, [rows][groups] each.
struct ChannelQueries {
  const float* pairs;  // [rows][whole_codes(head_dim)]
  float* step;         // score = sum over groups of scale * (step * products + rest) + zero * sum
  float* rest;
  float* sum;
};

template <int BITS>
void round_channels(const PackedEntries& keys, const float* const* q, int64_t rows, float* pairs, ChannelQueries& to) {
  const int64_t d = keys.head_dim, stride = whole_codes(d), group = keys.format.group_size, groups = d / group;
  const LevelShift shift = level_shift(keys.format);
  to = {pairs, pairs + rows * stride, pairs + rows * (stride + groups), pairs + rows * (stride + 2 * groups)};
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t g = 0; g < groups; ++g) {
      float* x = pairs + i * stride + g * group;
      F32x16 largest = zero16(), total = zero16();
      for (int64_t c = 0; c < group; c += kLanes) {
        const F32x16 query = load16(q[i] + g * group + c);
        store16(x + c, query);
        largest = max(largest, abs16(query));
        total = add(total, query);
      }
      const Step step = step_of(max_lanes(largest));
      const F32x16 rounded = mul(numbers(round_queries<BITS>(x, group, step.inverse)), set16(step.step));
      const int64_t at = i * groups + g;
      to.step[at] = step.step;
      to.sum[at] = sum_lanes(total);
      to.rest[at] = sum_lanes(fma(set16(-shift.code), rounded, mul(set16(shift.level), total)));
    }
  }
}

/// Keys grouped along channels: rows first .. first+ROWS-1.
template <class M, int BITS, int ROWS, int CELLS, class Sink>
[[gnu::noinline]] void integer_token_tile(const PackedEntries& keys, const uint32_t* const* cells, const Touch* touches,
                                          const ChannelQueries& queries, int first, int cell, const Sink& sink) {
  const int64_t d = keys.head_dim, group = keys.format.group_size, groups = d / group;
  const float* pairs[CELLS];
  for (int j = 0; j < CELLS; ++j) pairs[j] = queries.pairs + first * whole_codes(d);
  F32x16 total[ROWS][CELLS];
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) total[i][j] = zero16();
  }
  for (int64_t g = 0; g < groups; ++g) {
    U32x16 acc[ROWS][CELLS];
    integer_products<BITS, ROWS, CELLS, CELLS>(cells, pairs, d, g * group, (g + 1) * group, acc);
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) {
      const int64_t at = (touches[j].cell * groups + g) * kCell;
      const F32x16 scale = keys.scale != nullptr ? load16(M{}, keys.scale + at) : set16(1);
      const F32x16 zero = keys.zero != nullptr ? load16(M{}, keys.zero + at) : zero16();
#pragma GCC unroll 4
      for (int i = 0; i < ROWS; ++i) {
        const int64_t q = (first + i) * groups + g;
        const F32x16 dot = fma(numbers(acc[i][j]), set16(queries.step[q]), set16(queries.rest[q]));
        total[i][j] = fma(set16(queries.sum[q]), zero, fma(dot, scale, total[i][j]));
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) sink(first + i, cell + j, total[i][j]);
  }
}

template <int N>
struct RowCount {
  static constexpr int value = N;
};

/// f(first row, number of rows) over tiles of up to kIntegerKeyRows rows.
template <class F>
KVARENA_INLINE void for_row_tiles(int64_t rows, const F& f) {
  if constexpr (kIntegerKeyRows >= 4) {
    if (rows == 4) return f(0, RowCount<4>{});
  }
  int first = 0;
  for (; first + 3 <= rows; first += 3) f(first, RowCount<3>{});
  if (first + 2 == rows) return f(first, RowCount<2>{});
  if (first < rows) f(first, RowCount<1>{});
}

template <class M, int BITS, int CELLS, class Sink>
void dot_integer_channels(const PackedEntries& keys, const float* const* q, int64_t rows, const Touch* touches,
                          const uint32_t* const* cells, float* scratch, const Sink& sink) {
  GroupQueries made[CELLS];
  const GroupQueries* queries[CELLS];
  int64_t previous = -1;
  for (int j = 0; j < CELLS; ++j) {
    const int64_t group = touches[j].cell * kCell / keys.format.group_size;
    if (j > 0 && group == previous) {
      queries[j] = queries[j - 1];
      continue;
    }
    previous = group;
    queries[j] = &made[j];
    round_group<M, BITS>(keys, q, rows, group, scratch + j * kPackedRows * whole_codes(keys.head_dim), made[j]);
  }
  constexpr int kStep = CELLS < kIntegerKeyCells ? CELLS : kIntegerKeyCells;
  for (int j = 0; j < CELLS; j += kStep) {
    for_row_tiles(rows, [&](int first, auto count) {
      constexpr int kRows = decltype(count)::value;
      if constexpr (kStep == 4) {
        if (queries[j] == queries[j + 1] && queries[j + 2] == queries[j + 3]) {
          return integer_channel_tile<BITS, kRows, 4, 2>(keys, cells + j, queries + j, first, j, sink);
        }
      }
      integer_channel_tile<BITS, kRows, kStep, 1>(keys, cells + j, queries + j, first, j, sink);
    });
  }
}

template <class M, int BITS, int CELLS, class Sink>
void dot_integer_bits(const PackedEntries& keys, const float* const* q, int64_t rows, const Touch* touches,
                      float* scratch, const Sink& sink) {
  const uint32_t* cells[CELLS];
  for (int j = 0; j < CELLS; ++j) {
    cells[j] = keys.codes + touches[j].cell * packed_planes(keys.head_dim, BITS) * kLanes;
  }
  if (!keys.format.token_groups) {
    return dot_integer_channels<M, BITS, CELLS>(keys, q, rows, touches, cells, scratch, sink);
  }
  ChannelQueries queries;
  round_channels<BITS>(keys, q, rows, scratch, queries);
  constexpr int kStep = CELLS < kIntegerKeyCells ? CELLS : kIntegerKeyCells;
  for (int j = 0; j < CELLS; j += kStep) {
    for_row_tiles(rows, [&](int first, auto count) {
      integer_token_tile<M, BITS, decltype(count)::value, kStep>(keys, cells + j, touches + j, queries, first, j, sink);
    });
  }
}

/// dot_packed() of formats that multiplies_keys_as_integers() names. `scratch` holds CELLS * kPackedRows *
/// whole_codes(head_dim) floats, and for one cell as many as for two.
template <int CELLS, class Sink>
void dot_integer(const PackedEntries& keys, const float* const* q, int64_t rows, const Touch* touches, float* scratch,
                 const Sink& sink) {
  const auto with_meta = [&](auto meta) {
    using M = decltype(meta);
    switch (keys.format.bits) {
      case 1: return dot_integer_bits<M, 1, CELLS>(keys, q, rows, touches, scratch, sink);
      case 2: return dot_integer_bits<M, 2, CELLS>(keys, q, rows, touches, scratch, sink);
      default: return dot_integer_bits<M, 4, CELLS>(keys, q, rows, touches, scratch, sink);
    }
  };
  if (keys.format.meta == DType::bf16) return with_meta(BF16{});
  with_meta(F16{});
}

}  // namespace
}  // namespace kvarena::kernels
