#include "kernels/matmul/magnitudes.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/common/parallel.h"
#include "kernels/matmul/matmul_paths.h"

namespace kvarena::kernels {
namespace {

constexpr int64_t kPanel = PackedMatrix::kPanel;

void reference(const float* x, int64_t x_stride, const PackedMatrix& w, int64_t row, float* sums) {
  std::vector<float> y(static_cast<size_t>(w.n()));
  matmul_reference({x + row * x_stride, 1, x_stride, &w, nullptr, y.data(), w.n()}, 0);
  double sum = 0;
  for (const float element : y) sum += std::fabs(element);
  sums[row] = static_cast<float>(sum);
}

/// One tile of rows against every panel; columns past n are zero there and add nothing.
void sum_tile(const MatmulTable& fast, const float* tile, int64_t rows, const PackedMatrix& w, float* sums) {
  static thread_local Scratch<float> wide_scratch, c_scratch, lanes_scratch;
  float* wide = wide_scratch.get(kDepth * kPanel);
  float* c = c_scratch.get(fast.tile_rows * kPanel);
  float* lanes = lanes_scratch.get(fast.tile_rows * kPanel);
  std::fill_n(lanes, fast.tile_rows * kPanel, 0.0F);
  for (int64_t panel = 0; panel < w.panels(); ++panel) {
    for (int64_t depth = 0; depth < w.k(); depth += kDepth) {
      const int64_t steps = std::min(kDepth, w.k() - depth);
      const void* stored = static_cast<const char*>(w.data()) + (panel * w.k() + depth) * kPanel * size_of(w.dtype());
      const auto* weights = static_cast<const float*>(stored);
      if (w.dtype() != DType::f32) {
        fast.widen(stored, w.dtype(), steps, wide);
        weights = wide;
      }
      fast.tile(tile + depth * fast.tile_rows, weights, rows, steps, depth == 0, c);
    }
    fast.add_magnitudes(c, rows, lanes);
  }
  for (int64_t i = 0; i < rows; ++i) sums[i] = std::accumulate(lanes + i * kPanel, lanes + (i + 1) * kPanel, 0.0F);
}

}  // namespace

void row_magnitudes(const float* x, int64_t m, int64_t x_stride, const PackedMatrix& w, float* sums) {
  require(m >= 0 && (m <= 1 || x_stride >= w.k()), "row_magnitudes: negative m or overlapping rows");
  if (w.k() == 0) return static_cast<void>(std::fill_n(sums, m, 0.0F));
  const MatmulTable* fast = KVARENA_ACTIVE_TABLE(matmul_table);
  if (fast == nullptr) {
    return parallel_for(m, m * w.k() * w.n(), [&](int64_t row) { reference(x, x_stride, w, row, sums); });
  }
  const int64_t tiles = (m + fast->tile_rows - 1) / fast->tile_rows;
  parallel_for(tiles, m * w.k() * w.n(), [&](int64_t t) {
    static thread_local Scratch<float> tile_scratch;
    float* tile = tile_scratch.get(fast->tile_rows * w.k());
    const int64_t row = t * fast->tile_rows, rows = std::min(fast->tile_rows, m - row);
    fast->pack_tile(x + row * x_stride, x_stride, rows, w.k(), tile);
    sum_tile(*fast, tile, rows, w, sums + row);
  });
}

}  // namespace kvarena::kernels
