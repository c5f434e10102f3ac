#include "kernels/cell_scores/cell_scores_paths.h"
#include "kernels/common/simd.h"

namespace kvarena::kernels {
namespace {

// ROWS queries side by side hide the latency of the multiply-adds and share what was loaded.
template <class Format, int ROWS>
void score_rows(Format format, const CellScoresWork& work, int64_t row) {
  const auto* stored = static_cast<const typename Format::Stored*>(work.cell);
  const float* q = work.q + row * work.q_stride;
  F32x16 sums[ROWS];
  for (int r = 0; r < ROWS; ++r) sums[r] = zero16();
  for (int64_t c = 0; c < work.channels; ++c) {
    const F32x16 key = load16(format, stored + c * kLanes);
    for (int r = 0; r < ROWS; ++r) sums[r] = fma(set16(q[r * work.q_stride + c]), key, sums[r]);
  }
  const Mask16 present = first_lanes(work.entries);
  for (int r = 0; r < ROWS; ++r) store16(work.scores + (row + r) * work.score_stride, sums[r], present);
}

void score(const CellScoresWork& work) {
  with_format(static_cast<int>(work.dtype), [&](auto format) {
    int64_t row = 0;
    for (; row + 4 <= work.rows; row += 4) score_rows<decltype(format), 4>(format, work, row);
    if (work.rows - row == 3) return score_rows<decltype(format), 3>(format, work, row);
    for (; row < work.rows; ++row) score_rows<decltype(format), 1>(format, work, row);
  });
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const CellScoresTable cell_scores_table;
const CellScoresTable cell_scores_table = {score};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
