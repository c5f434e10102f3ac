#include "kernels/cell_scores/cell_scores_paths.h"

namespace kvarena::kernels {
namespace {

void score(const CellScoresWork& work) {
  for (int64_t r = 0; r < work.rows; ++r) {
    for (int64_t e = 0; e < work.entries; ++e) {
      double sum = 0;
      for (int64_t c = 0; c < work.channels; ++c) {
        sum += static_cast<double>(work.q[r * work.q_stride + c]) * load_element(work.cell, work.dtype, c * kCell + e);
      }
      work.scores[r * work.score_stride + e] = static_cast<float>(sum);
    }
  }
}

}  // namespace

const CellScoresTable cell_scores_reference = {score};

}  // namespace kvarena::kernels
