// One chunk in three passes: scores (lanes over entries, several cells side by side so that the memory has several
// streams), softmax weights, values (lanes over channels, 64 entries at a time so that many query rows find them in the
// first-level cache). An indexed run computes the scores of every cell it touches whole and keeps the listed lanes: one
// entry's key lies on as many cache lines as its cell, so nothing more is read, and dense and indexed bits agree.
#include "kernels/attention/attention_paths.h"
#include "kernels/cells/touch_simd.h"
#include "kernels/common/simd.h"

namespace kvarena::kernels {
namespace {

#if defined(KVARENA_SIMD_AVX512)
constexpr int kScoreRows = 6, kScoreCells = 4;  // 24 accumulators
constexpr int kValueRows = 6, kValueVecs = 4;
#else
constexpr int kScoreRows = 3, kScoreCells = 2;  // 12 half registers
constexpr int kValueRows = 3, kValueVecs = 2;
#endif
constexpr int64_t kValueEntries = 64;
/// Which of a pair of weights count.
constexpr uint32_t kLower = 0x0000ffff, kUpper = 0xffff0000, kBoth = 0xffffffff;
/// Values of a dense run are fetched this many entries ahead: 8 KiB of 64 channels.
template <class T>
constexpr int64_t kAheadEntries = sizeof(typename T::Stored) == 4 ? 32 : 64;
/// Listed values are fetched this many entries ahead.
constexpr int64_t kValueAhead = 32;

template <class T, int ROWS, int CELLS, bool FETCH>
void score_tile(const ChunkArgs& args, int64_t row, const Touch* touches, const Touch* last) {
  const int64_t packed_cells = cells_for(args.packed_key_count);
  const typename T::Stored *keys[CELLS], *next[CELLS];
  for (int j = 0; j < CELLS; ++j) {
    const int64_t cell = touches[j].cell - packed_cells;
    keys[j] = static_cast<const typename T::Stored*>(args.keys) + cell * kCell * args.head_dim;
    const int64_t distance = touches + j + CELLS <= last ? touches[j + CELLS].cell - touches[j].cell : CELLS;
    next[j] = keys[j] + distance * kCell * args.head_dim;
  }
  F32x16 acc[ROWS][CELLS];
  dot_tile<T, ROWS, CELLS, FETCH>(args.q + row, keys, next, args.head_dim, acc);
  const F32x16 scale = set16(args.scale);
  float* to = args.scores + row * kChunk;
  if (args.index == nullptr) {  // straight from the registers
    to += touches[0].position;
#pragma GCC unroll 6
    for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < CELLS; ++j) store16(to + i * kChunk + j * kCell, mul(acc[i][j], scale));
    }
    return;
  }
  float scores[ROWS][CELLS][kLanes];
#pragma GCC unroll 6
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) store16(scores[i][j], mul(acc[i][j], scale));
  }
  for (int i = 0; i < ROWS; ++i) {
    for (int j = 0; j < CELLS; ++j) {
      store_listed(to + i * kChunk + touches[j].position, args.index, args.first, touches[j], load16(scores[i][j]));
    }
  }
}

template <class T, int CELLS>
void score_rows(const ChunkArgs& args, int64_t row, int64_t rows, const Touch* touches, const Touch* last) {
  switch (rows) {
    case 1: return score_tile<T, 1, CELLS, true>(args, row, touches, last);
    case 2: return score_tile<T, 2, CELLS, true>(args, row, touches, last);
#if defined(KVARENA_SIMD_AVX512)
    case 3: return score_tile<T, 3, CELLS, true>(args, row, touches, last);
    case 4: return score_tile<T, 4, CELLS, true>(args, row, touches, last);
    case 5: return score_tile<T, 5, CELLS, true>(args, row, touches, last);
#endif
    default:  // later row tiles find the cells in the cache
      if (row > 0) return score_tile<T, kScoreRows, CELLS, false>(args, row, touches, last);
      return score_tile<T, kScoreRows, CELLS, true>(args, row, touches, last);
  }
}

/// List positions that any of the rows sees.
struct Span {
  int64_t low, high;
};
Span seen_by_any(const ChunkArgs& args, int64_t row, int64_t rows) {
  Span span{kChunk, 0};
  for (int64_t r = row; r < row + rows; ++r) {
    if (args.low[r] >= args.high[r]) continue;
    span.low = min_of(span.low, args.low[r]);
    span.high = max_of(span.high, args.high[r]);
  }
  return span;
}

/// All rows that see any of CELLS touched cells.
template <class T, int CELLS>
void score_cells(const ChunkArgs& args, const Touch* touches, const Touch* last) {
  const int64_t begin = touches[0].position, end = touches[CELLS - 1].position + touches[CELLS - 1].count;
  for (int64_t row = 0; row < args.rows; row += kScoreRows) {
    const int64_t rows = min_of(kScoreRows, args.rows - row);
    const Span needed = seen_by_any(args, row, rows);
    if (needed.high > begin && needed.low < end) score_rows<T, CELLS>(args, row, rows, touches, last);
  }
}

template <class T>
void score_chunk(ChunkArgs args, Span seen) {
  Touch touches[kChunk];
  const int n = find_touches(args.index, args.first, seen.low, seen.high, touches);
  int t = args.packed_key_count > 0 ? args.packed->scores(args, touches, n) : 0;
  const float* rounded[kBlockQueryRows];
  for (int64_t row = 0; kRounded<T> && row < args.rows; ++row) {
    float* pairs = args.work + row * args.head_dim / 2;
    round_to_pairs(args.q[row], args.head_dim, pairs);
    rounded[row] = pairs;
  }
  if (kRounded<T>) args.q = rounded;
  for (; t + kScoreCells <= n; t += kScoreCells) score_cells<T, kScoreCells>(args, touches + t, touches + n - 1);
  for (; t < n; ++t) score_cells<T, 1>(args, touches + t, touches + n - 1);
}

/// Adds the biases of list positions begin .. end-1 to a row's scores, whole vectors at a time.
void add_biases(const ChunkArgs& args, float* scores, int64_t begin, int64_t end) {
  for (int64_t p = begin; p < end; p += kLanes) {
    store16(scores + p, add(load16(scores + p), load16(args.bias + p, first_lanes(args.count - p))));
  }
}

/// Scores to weights in place; weights outside the visible range are not defined.
void softmax_row(const ChunkArgs& args, int64_t row) {
  const int64_t low = args.low[row], high = args.high[row];
  float* s = args.scores + row * kChunk;
  // Only the first and the last vector may hold lanes that the row does not see.
  const int64_t begin = low / kLanes * kLanes, last = (high - 1) / kLanes * kLanes;
  if (args.bias != nullptr) add_biases(args, s, begin, high);
  const F32x16 nothing = set16(-__builtin_inff());
  const auto hide = [&](int64_t p) {
    const Mask16 seen = and_not(first_lanes(high - p), first_lanes(low - p));
    store16(s + p, select(seen, load16(s + p), nothing));
  };
  hide(begin);
  hide(last);
  F32x16 maximum = nothing;
  for (int64_t p = begin; p <= last; p += kLanes) maximum = max(maximum, load16(s + p));
  const float m = max_lanes(maximum);
  const F32x16 shift = set16(m);
  F32x16 total = zero16();
  for (int64_t p = begin; p <= last; p += kLanes) {
    const F32x16 weight = exp16(sub(load16(s + p), shift));
    total = add(total, weight);
    store16(s + p, weight);
  }
  if (args.weights != nullptr) {
    float* kept = args.weights + row * args.weights_stride;
    for (int64_t p = begin; p <= last; p += kLanes) store16(kept + p, load16(s + p));
  }
  args.max[row] = m;
  args.sum[row] = sum_lanes(total);
}

/// Address of the value at list position p of the chunk.
template <class T>
KVARENA_INLINE const typename T::Stored* value_at(const ChunkArgs& args, int64_t p) {
  // Past the chunk the next entries are as good a guess as any: only fetches go there.
  const bool listed = args.index != nullptr && p < args.count;
  const int64_t entry = listed ? args.index[args.first + p] : args.first + p;
  return static_cast<const typename T::Stored*>(args.values) + (entry - args.packed_value_count) * args.value_dim;
}

/// Asks for the whole value at list position p.
template <class T>
KVARENA_INLINE void fetch_value(const ChunkArgs& args, int64_t p) {
  const auto* value = value_at<T>(args, p);
  for (int64_t c = 0; c < args.value_dim; c += 64 / static_cast<int64_t>(sizeof(*value))) fetch(value + c);
}

/// acc[i][v] += the weight of each row times an entry's channels.
template <class T, int ROWS, int VECS>
KVARENA_INLINE void add_entry(const float* weights, const typename T::Stored* value, F32x16 (&acc)[ROWS][VECS]) {
  F32x16 x[VECS];
#pragma GCC unroll 4
  for (int v = 0; v < VECS; ++v) x[v] = load16(T{}, value + v * kLanes);
#pragma GCC unroll 6
  for (int i = 0; i < ROWS; ++i) {
    const F32x16 weight = set16(weights[i * kChunk]);
#pragma GCC unroll 4
    for (int v = 0; v < VECS; ++v) acc[i][v] = fma(weight, x[v], acc[i][v]);
  }
}

/// acc[i][v] += the pair of weights of each row times two entries' channels; weights outside `mask` count as zero.
template <int ROWS, int VECS>
KVARENA_INLINE void add_entries(const float* pairs, const uint16_t* lower, const uint16_t* upper, uint32_t mask,
                                F32x16 (&acc)[ROWS][VECS]) {
  F32x16 x[VECS];
#pragma GCC unroll 4
  for (int v = 0; v < VECS; ++v) x[v] = load_pairs(lower + v * kLanes, upper + v * kLanes);
#pragma GCC unroll 6
  for (int i = 0; i < ROWS; ++i) {
    F32x16 weight = set16(pairs[i * kChunk]);
    if (mask != kBoth) weight = bits_of(masked(bits_of(weight), mask));
#pragma GCC unroll 4
    for (int v = 0; v < VECS; ++v) acc[i][v] = add_pair(acc[i][v], weight, x[v]);
  }
}

/// ROWS rows, VECS vectors of channels, list positions begin .. end-1. The first row tile also asks for what comes
/// next: of a dense run the same bytes one block later, of a listed run the whole value some entries ahead.
template <class T, int ROWS, int VECS, bool LISTED>
void value_tile(const ChunkArgs& args, int64_t row, int64_t channel, int64_t begin, int64_t end) {
  if (begin >= end) return;
  constexpr int kLine = 64 / sizeof(typename T::Stored);
  const float* weights = args.scores + row * kChunk;
  float* out = args.out + row * args.value_dim + channel;
  F32x16 acc[ROWS][VECS];
#pragma GCC unroll 6
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < VECS; ++v) acc[i][v] = load16(out + i * args.value_dim + v * kLanes);
  }
  const auto* value = value_at<T>(args, begin) + channel;
  // Where several tiles of channels share a block, they walk the next block's bytes from front to back, each its own
  // part.
  const int64_t distance = args.value_dim == VECS * kLanes ? kAheadEntries<T> : kValueEntries;
  const auto* ahead = row > 0 ? value : value_at<T>(args, begin) + distance * args.value_dim + kValueEntries * channel;
  const auto next = [&](int64_t p) __attribute__((always_inline)) {
    const auto* at = value;
    if constexpr (LISTED) {
      at = value_at<T>(args, p) + channel;
      if (row == 0 && channel == 0) fetch_value<T>(args, p + kValueAhead);
    } else {
#pragma GCC unroll 4
      for (int v = 0; v < VECS * kLanes; v += kLine) fetch(ahead + v);
      ahead += VECS * kLanes;
      value += args.value_dim;
    }
    return at;
  };
  if constexpr (kRounded<T>) {
    const auto alone = [&](int64_t p) {
      const auto* entry = next(p);
      add_entries<ROWS, VECS>(weights + p / 2, entry, entry, p % 2 == 0 ? kLower : kUpper, acc);
    };
    int64_t p = begin;
    if (p % 2 != 0) alone(p++);
    for (; p + 2 <= end; p += 2) {
      const auto *lower = next(p), *upper = next(p + 1);
      add_entries<ROWS, VECS>(weights + p / 2, lower, upper, kBoth, acc);
    }
    if (p < end) alone(p);
  } else {
    for (int64_t p = begin; p < end; ++p) add_entry<T, ROWS, VECS>(weights + p, next(p), acc);
  }
#pragma GCC unroll 6
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < VECS; ++v) store16(out + i * args.value_dim + v * kLanes, acc[i][v]);
  }
}

/// All channels of ROWS rows over list positions begin .. end-1, which every one of them sees.
template <class T, int ROWS>
void value_channels(const ChunkArgs& args, int64_t row, int64_t begin, int64_t end) {
  int64_t channel = 0;
  for (; channel + kValueVecs * kLanes <= args.value_dim; channel += kValueVecs * kLanes) {
    if (args.index != nullptr) {
      value_tile<T, ROWS, kValueVecs, true>(args, row, channel, begin, end);
    } else {
      value_tile<T, ROWS, kValueVecs, false>(args, row, channel, begin, end);
    }
  }
  for (; channel < args.value_dim; channel += kLanes) value_tile<T, ROWS, 1, true>(args, row, channel, begin, end);
}

template <class T>
void value_rows(const ChunkArgs& args, int64_t row, int64_t rows, int64_t begin, int64_t end) {
  switch (rows) {
    case 1: return value_channels<T, 1>(args, row, begin, end);
    case 2: return value_channels<T, 2>(args, row, begin, end);
#if defined(KVARENA_SIMD_AVX512)
    case 3: return value_channels<T, 3>(args, row, begin, end);
    case 4: return value_channels<T, 4>(args, row, begin, end);
    case 5: return value_channels<T, 5>(args, row, begin, end);
#endif
    default: return value_channels<T, kValueRows>(args, row, begin, end);
  }
}

/// One row tile over one block of entries: what only some rows see is added row by row before and after what all see,
/// so every row takes its entries in ascending order. Pairs are not cut in between.
template <class T>
void value_block(const ChunkArgs& args, int64_t row, int64_t rows, int64_t begin, int64_t end) {
  int64_t common_low = begin, common_high = end;
  for (int64_t r = row; r < row + rows; ++r) {
    common_low = max_of(common_low, args.low[r]);
    common_high = min_of(common_high, args.high[r]);
  }
  if (kRounded<T>) common_low += common_low % 2;
  if (kRounded<T>) common_high -= common_high % 2;
  if (common_low >= common_high) {
    for (int64_t r = row; r < row + rows; ++r) {
      value_rows<T>(args, r, 1, max_of(begin, args.low[r]), min_of(end, args.high[r]));
    }
    return;
  }
  for (int64_t r = row; r < row + rows; ++r) value_rows<T>(args, r, 1, max_of(begin, args.low[r]), common_low);
  value_rows<T>(args, row, rows, common_low, common_high);
  for (int64_t r = row; r < row + rows; ++r) value_rows<T>(args, r, 1, common_high, min_of(end, args.high[r]));
}

/// The first list position of the chunk whose value is not packed.
int64_t first_unpacked(const ChunkArgs& args) {
  if (args.packed_value_count == 0) return 0;
  if (args.index == nullptr) return max_of(0, min_of(args.count, args.packed_value_count - args.first));
  int64_t p = 0;
  while (p < args.count && args.index[args.first + p] < args.packed_value_count) ++p;
  return p;
}

template <class T>
void value_chunk(const ChunkArgs& args, Span seen) {
  const int64_t border = first_unpacked(args);
  if (border > seen.low) args.packed->values(args, seen.low, min_of(border, seen.high));
  int64_t begin = max_of(seen.low, border);
  if constexpr (kRounded<T>) {
    // In place: what lies before is not needed any more.
    const int64_t first = begin / kLanes * kLanes, last = (seen.high + kLanes - 1) / kLanes * kLanes;
    for (int64_t row = 0; row < args.rows; ++row) {
      float* weights = args.scores + row * kChunk;
      round_to_pairs(weights + first, last - first, weights + first / 2);
    }
  }
  // A block is read once when there is one tile of rows and one of channels.
  const bool one_tile = args.rows <= kValueRows && args.value_dim == kValueVecs * kLanes;
  const int64_t block = one_tile ? kChunk : kValueEntries;
  for (int64_t end = begin; begin < seen.high; begin = end) {
    end = min_of(seen.high, begin / block * block + block);
    for (int64_t row = 0; row < args.rows; row += kValueRows) {
      value_block<T>(args, row, min_of(kValueRows, args.rows - row), begin, end);
    }
  }
}

template <class T>
void chunk_format(const ChunkArgs& args) {
  const Span seen = seen_by_any(args, 0, args.rows);
  if (seen.low < seen.high) score_chunk<T>(args, seen);
  if (first_unpacked(args) < args.count) {
    for (int64_t p = seen.low; p < min_of(seen.high, seen.low + kAheadEntries<T>); ++p) fetch_value<T>(args, p);
  }
  for (int64_t row = 0; row < args.rows; ++row) {
    if (args.low[row] < args.high[row]) {
      softmax_row(args, row);
    } else {
      args.max[row] = -__builtin_inff();
      args.sum[row] = 0;
    }
  }
  for (int64_t i = 0; i < args.rows * args.value_dim; i += kLanes) store16(args.out + i, zero16());
  if (seen.low < seen.high) value_chunk<T>(args, seen);
}

void chunk(const ChunkArgs& args) {
  if (args.arithmetic == Arithmetic::bf16 && args.dtype == DType::bf16) {
    flush_denormals();
    chunk_format<RoundedBF16>(args);
    return keep_denormals();
  }
  with_format(static_cast<int>(args.dtype), [&](auto format) { chunk_format<decltype(format)>(args); });
}

void merge(float* out, float* max_state, float* sum, const float* from_out, float from_max, float from_sum,
           int64_t value_dim) {
  const float m = from_max > *max_state ? from_max : *max_state;
  const F32x16 a = exp16(set16(*max_state - m)), b = exp16(set16(from_max - m));
  for (int64_t c = 0; c < value_dim; c += kLanes) {
    store16(out + c, fma(load16(out + c), a, mul(load16(from_out + c), b)));
  }
  alignas(64) float merged[kLanes];
  store16(merged, fma(set16(*sum), a, mul(set16(from_sum), b)));
  *sum = merged[0];
  *max_state = m;
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const AttentionTable attention_table;
const AttentionTable attention_table = {chunk, merge};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
