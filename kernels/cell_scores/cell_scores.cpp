#include "kernels/cell_scores/cell_scores.h"

#include <algorithm>

#include "kernels/cell_scores/cell_scores_paths.h"
#include "kernels/common/parallel.h"

namespace kvarena::kernels {
namespace {

constexpr int64_t kWorthThreads = 1024;  // cells

const CellScoresTable& table() {
  const CellScoresTable* fast = KVARENA_ACTIVE_TABLE(cell_scores_table);
  return fast != nullptr ? *fast : cell_scores_reference;
}

}  // namespace

void cell_scores(const float* q, int64_t rows, int64_t q_stride, const Cells& keys, int64_t entries, float* scores,
                 int64_t score_stride) {
  require(keys.kind == CellKind::keys && keys.head_dim > 0, "cell_scores: cells of keys with at least one channel");
  const CellScoresTable& use = table();
  const int64_t cell_size = kCell * keys.head_dim * size_of(keys.dtype);
  const auto one = [&](int64_t cell) {
    use.score({.q = q,
               .rows = rows,
               .q_stride = q_stride,
               .dtype = keys.dtype,
               .channels = keys.head_dim,
               .cell = static_cast<const char*>(keys.data) + cell * cell_size,
               .entries = std::min(kCell, entries - cell * kCell),
               .scores = scores + cell * kCell,
               .score_stride = score_stride});
  };
  const int64_t cells = cells_for(entries);
  if (cells * rows >= kWorthThreads) return parallel_for(cells, one);
  for (int64_t cell = 0; cell < cells; ++cell) one(cell);
}

}  // namespace kvarena::kernels
