// Sixteen entries at a time. Lanes that a row does not see have weight 0 in the first and the last vector it touches,
// and sums are stored only where they are seen.
#include "kernels/attention_sums/attention_sums_paths.h"
#include "kernels/attention_sums/gumbel_noise.h"
#include "kernels/common/simd.h"

namespace kvarena::kernels {
namespace {

/// Sixteen entries that some row sees.
struct Piece {
  int64_t p;  // list position of the first, a multiple of 16
  Mask16 seen;
};

/// Calls use(piece) for list positions low .. high-1.
template <class F>
KVARENA_INLINE void for_pieces(int64_t low, int64_t high, const F& use) {
  const int64_t begin = low / kLanes * kLanes;
  for (int64_t p = begin; p < high; p += kLanes) use(Piece{p, and_not(first_lanes(high - p), first_lanes(low - p))});
}

/// Weights of a piece, and the factor of its chunk.
struct RowWeights {
  const float* weights;
  const float* factors;
  int64_t first;  // list position
  KVARENA_INLINE F32x16 probabilities(int64_t p) const {
    return mul(load16(weights + (p - first)), set16(factors[(p - first) / kChunk]));
  }
};
KVARENA_INLINE RowWeights row_weights(const ProbabilityRows& rows, int64_t row) {
  return {rows.weights + row * rows.weights_stride, rows.factors + row * rows.factors_stride, rows.first};
}

constexpr int kTokens = 4;

/// One query head, TOKENS tokens from `token` on, `count` list positions from p on: whole vectors of one chunk that all
/// of the tokens see.
template <int TOKENS>
KVARENA_INLINE void add_tokens(const ProbabilityRows& rows, int64_t token, int64_t g, int64_t p, int64_t count,
                               float* sums) {
  const float* weights[TOKENS];
  F32x16 factor[TOKENS];
  for (int t = 0; t < TOKENS; ++t) {
    const int64_t row = (token + t) * rows.group + g;
    weights[t] = rows.weights + row * rows.weights_stride + (p - rows.first);
    factor[t] = set16(rows.factors[row * rows.factors_stride + (p - rows.first) / kChunk]);
  }
  for (int64_t i = 0; i < count; i += kLanes) {
    F32x16 sum = load16(sums + p + i);
    for (int t = 0; t < TOKENS; ++t) sum = fma(load16(weights[t] + i), factor[t], sum);
    store16(sums + p + i, sum);
  }
}

/// One query head, all tokens, list positions begin .. end-1, which are whole vectors and which all tokens see: chunk
/// by chunk, whose sums stay in the first-level cache.
void add_common(const ProbabilityRows& rows, int64_t g, int64_t begin, int64_t end, float* sums) {
  for (int64_t p = begin; p < end;) {
    const int64_t count = min_of(end, (p / kChunk + 1) * kChunk) - p;
    int64_t t = 0;
    for (; t + kTokens <= rows.tokens; t += kTokens) add_tokens<kTokens>(rows, t, g, p, count, sums);
    for (; t < rows.tokens; ++t) add_tokens<1>(rows, t, g, p, count, sums);
    p += count;
  }
}

/// Adds one row at list positions low .. high-1.
void add_row(const ProbabilityRows& rows, int64_t row, int64_t low, int64_t high, float* sums) {
  const RowWeights from = row_weights(rows, row);
  for_pieces(low, high, [&](Piece piece) {
    const F32x16 weight = load16(from.weights + (piece.p - from.first));
    const F32x16 factor = set16(from.factors[(piece.p - from.first) / kChunk]);
    store16(sums + piece.p, fma(weight, factor, load16(sums + piece.p, piece.seen)), piece.seen);
  });
}

/// List positions in whole vectors that every token sees: low .. high-1.
struct Common {
  int64_t low, high;
};
Common common(const ProbabilityRows& rows) {
  int64_t low = 0, high = rows.high[0];
  for (int64_t t = 0; t < rows.tokens; ++t) {
    low = max_of(low, rows.low[t]);
    high = min_of(high, rows.high[t]);
  }
  low = (low + kLanes - 1) / kLanes * kLanes;
  high = high / kLanes * kLanes;
  return {low, max_of(low, high)};
}

void probabilities(const ProbabilityRows& rows, float* sums, int64_t stride) {
  const Common all = common(rows);
  for (int64_t g = 0; g < rows.group; ++g) {
    add_common(rows, g, all.low, all.high, sums + g * stride);
    for (int64_t t = 0; t < rows.tokens; ++t) {
      const int64_t row = t * rows.group + g;
      add_row(rows, row, rows.low[t], min_of(all.low, rows.high[t]), sums + g * stride);
      add_row(rows, row, max_of(all.high, rows.low[t]), rows.high[t], sums + g * stride);
    }
  }
}

void moments(const ProbabilityRows& rows, float* sums, float* squares) {
  const F32x16 group = set16(static_cast<float>(rows.group));
  for (int64_t t = 0; t < rows.tokens; ++t) {
    for_pieces(rows.low[t], rows.high[t], [&](Piece piece) {
      F32x16 mean = zero16();
      for (int64_t g = 0; g < rows.group; ++g) {
        mean = add(mean, row_weights(rows, t * rows.group + g).probabilities(piece.p));
      }
      mean = div(mean, group);
      const F32x16 square = mul(mean, mean);
      store16(sums + piece.p, add(load16(sums + piece.p, piece.seen), mean), piece.seen);
      store16(squares + piece.p, add(load16(squares + piece.p, piece.seen), square), piece.seen);
    });
  }
}

/// x^power for x >= 0; 0 for what is too small for a normal number.
KVARENA_INLINE F32x16 power16(F32x16 x, F32x16 power) {
  const F32x16 smallest = set16(1.17549435e-38f);
  return select(less(x, smallest), zero16(), exp16(mul(log16(max(smallest, x)), power)));
}

static_assert(kNoiseRun == kChunk, "a chunk's weights and its draws lie side by side");

/// The visible part low .. high-1 of one row in one chunk: weights to work, which begins at vector `begin`; adds to
/// total.
KVARENA_INLINE void perturb_chunk(const RowWeights& from, int64_t chunk, int64_t low, int64_t high, const float* draws,
                                  float tau, float* work, int64_t begin, F32x16* total) {
  const F32x16 factor = set16(from.factors[chunk - from.first / kChunk]), power = set16(1 / tau);
  for_pieces(low, high, [&](Piece piece) {
    F32x16 weight = mul(load16(from.weights + (piece.p - from.first)), factor);
    if (draws != nullptr) weight = mul(weight, load16(draws + (piece.p - chunk * kChunk)));
    if (tau != 1) weight = power16(weight, power);
    store16(work + (piece.p - begin), weight);
    *total = add(*total, weight);
  });
}

void perturbed(const ProbabilityRows& rows, const uint64_t* keys, float tau, float* sums, float* work) {
  for (int64_t row = 0; row < rows.tokens * rows.group; ++row) {
    const RowWeights from = row_weights(rows, row);
    const int64_t low = rows.low[row / rows.group], high = rows.high[row / rows.group];
    if (low >= high) continue;
    const int64_t begin = low / kLanes * kLanes;
    F32x16 total = zero16();
    for (int64_t chunk = low / kChunk; chunk * kChunk < high; ++chunk) {
      const float* draws = keys == nullptr ? nullptr : gumbel_factors(keys[row], chunk);
      perturb_chunk(from, chunk, max_of(low, chunk * kChunk), min_of(high, (chunk + 1) * kChunk), draws, tau, work,
                    begin, &total);
    }
    const F32x16 share = set16(1 / sum_lanes(total));
    for_pieces(low, high, [&](Piece piece) {
      const F32x16 sum = fma(load16(work + (piece.p - begin)), share, load16(sums + piece.p, piece.seen));
      store16(sums + piece.p, sum, piece.seen);
    });
  }
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const AttentionSumsTable attention_sums_table;
const AttentionSumsTable attention_sums_table = {probabilities, moments, perturbed};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
