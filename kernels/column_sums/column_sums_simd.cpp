// Query rows in tiles of kRows against groups of cells; a tile's exponentials are added to the sums query by query
// before the next tile, so every sum grows in the order of the queries.
#include "kernels/cells/touch_simd.h"
#include "kernels/column_sums/column_sums_paths.h"
#include "kernels/common/simd.h"
#include "kernels/quantize/packed_keys_simd.h"

namespace kvarena::kernels {
namespace {

#if defined(KVARENA_SIMD_AVX512)
constexpr int kRows = 6, kCells = 4;
#else
constexpr int kRows = 3, kCells = 2;
#endif

/// exp(score - lse) of one row on the listed lanes of a cell, added where the row sees them.
void add_lanes(const ColumnSumsWork& work, int64_t t, int64_t h, const Touch& touch, F32x16 dot) {
  const int64_t low = work.low[t] - touch.position, high = work.high[t] - touch.position;
  const int64_t count = min_of(touch.count, work.count - touch.position);
  if (low >= count || high <= 0) return;
  const float lse = work.problem->lse[t * work.args->q_heads + h];
  if (lse == -__builtin_inff()) return;
  alignas(64) float listed[kLanes] = {};
  store_listed(listed, work.problem->runs[work.kv_head].index, work.first, touch, dot);
  F32x16 score = mul(load16(listed), set16(work.args->scale));
  const float* const bias = work.problem->runs[work.kv_head].bias;
  if (bias != nullptr) score = add(score, load16(bias + work.first + touch.position, first_lanes(count)));
  const F32x16 p = exp16(sub(score, set16(lse)));
  const Mask16 seen = and_not(first_lanes(min_of(high, count)), first_lanes(low));
  float* sums = work.problem->sums + h * work.problem->sums_stride + work.first + touch.position;
  store16(sums, add(load16(sums, seen), p), seen);
}

/// Some rows of queries, rounded where products are.
struct QueryTile {
  const float* q[kRows];
};

/// ROWS rows from row `row` on, of which `q` are the queries.
template <class T, int ROWS, int CELLS>
void tile(const ColumnSumsWork& work, int64_t row, const float* const* q, const Touch* touches) {
  const int64_t d = work.args->head_dim, group = work.args->q_heads / work.args->kv_heads;
  const ColumnSumsProblem& problem = *work.problem;
  const int64_t packed_cells = cells_for(problem.runs[work.kv_head].packed_key_count);
  const typename T::Stored *keys[CELLS], *next[CELLS];
  for (int j = 0; j < CELLS; ++j) {
    keys[j] = static_cast<const typename T::Stored*>(problem.runs[work.kv_head].keys) +
              (touches[j].cell - packed_cells) * kCell * d;
    next[j] = keys[j] + CELLS * kCell * d;
  }
  F32x16 acc[ROWS][CELLS];
  dot_tile<T, ROWS, CELLS, true>(q, keys, next, d, acc);
  for (int i = 0; i < ROWS; ++i) {
    const int64_t t = (row + i) / group, h = work.kv_head * group + (row + i) % group;
    for (int j = 0; j < CELLS; ++j) add_lanes(work, t, h, touches[j], acc[i][j]);
  }
}

template <class T, int CELLS>
void tiles(const ColumnSumsWork& work, int64_t row, int64_t rows, const QueryTile& queries, const Touch* touches) {
  const int64_t group = work.args->q_heads / work.args->kv_heads;
  const int64_t begin = touches[0].position, end = touches[CELLS - 1].position + touches[CELLS - 1].count;
  // Both ends of what a query sees only move forward with the queries.
  if (work.high[(row + rows - 1) / group] <= begin || work.low[row / group] >= end) return;
  if (rows == kRows) return tile<T, kRows, CELLS>(work, row, queries.q, touches);
  for (int64_t i = 0; i < rows; ++i) tile<T, 1, CELLS>(work, row + i, queries.q + i, touches);
}

/// Where the query of a row lies.
KVARENA_INLINE const float* query_at(const ColumnSumsWork& work, int64_t row) {
  const int64_t group = work.args->q_heads / work.args->kv_heads;
  const ColumnSumsProblem& problem = *work.problem;
  return problem.q + row / group * problem.q_token_stride +
         (work.kv_head * group + row % group) * problem.q_head_stride;
}

template <class T>
QueryTile queries_of(const ColumnSumsWork& work, int64_t row, int64_t rows) {
  QueryTile tile;
  for (int64_t i = 0; i < rows; ++i) {
    tile.q[i] = query_at(work, row + i);
    if constexpr (kRounded<T>) {
      float* pairs = work.work + i * work.args->head_dim / 2;
      round_to_pairs(tile.q[i], work.args->head_dim, pairs);
      tile.q[i] = pairs;
    }
  }
  return tile;
}

/// All queries against one touched cell of packed keys.
void run_packed(const ColumnSumsWork& work, const Touch& touch) {
  const ColumnSumsProblem& problem = *work.problem;
  const PackedEntries& keys = *problem.runs[work.kv_head].packed_keys;
  const int64_t group = work.args->q_heads / work.args->kv_heads, rows = problem.q_len * group;
  float* queries = work.work + kPackedCells * whole_codes(keys.head_dim) * kLanes;
  const bool fused = fuses_keys(keys, rows);
  if (!fused) unpack_keys<1>(keys, &touch, work.work);
  for (int64_t row = 0; row < rows; row += kPackedRows) {
    const int64_t some = min_of(kPackedRows, rows - row);
    const float* q[kPackedRows];
    for (int64_t i = 0; i < some; ++i) q[i] = query_at(work, row + i);
    dot_packed<1>(keys, q, some, &touch, fused ? nullptr : work.work, queries, [&](int i, int, F32x16 dot) {
      add_lanes(work, (row + i) / group, work.kv_head * group + (row + i) % group, touch, dot);
    });
  }
}

template <class T>
void run_format(const ColumnSumsWork& work) {
  Touch touches[kChunk];
  const HeadRun& head = work.problem->runs[work.kv_head];
  const int n = find_touches(head.index, work.first, 0, work.count, touches);
  int dense = 0;
  for (; dense < n && touches[dense].cell < cells_for(head.packed_key_count); ++dense) run_packed(work, touches[dense]);
  const int64_t rows = work.problem->q_len * (work.args->q_heads / work.args->kv_heads);
  for (int64_t row = 0; row < rows; row += kRows) {
    const int64_t some = min_of(kRows, rows - row);
    const QueryTile queries = queries_of<T>(work, row, some);
    int t = dense;
    for (; t + kCells <= n; t += kCells) tiles<T, kCells>(work, row, some, queries, touches + t);
    for (; t < n; ++t) tiles<T, 1>(work, row, some, queries, touches + t);
  }
}

void run(const ColumnSumsWork& work) {
  if (work.args->arithmetic == Arithmetic::bf16 && work.problem->dtype == DType::bf16) {
    flush_denormals();
    run_format<RoundedBF16>(work);
    return keep_denormals();
  }
  with_format(static_cast<int>(work.problem->dtype), [&](auto format) { run_format<decltype(format)>(work); });
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const ColumnSumsTable column_sums_table;
const ColumnSumsTable column_sums_table = {run};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
