#include "kernels/matmul/row_reductions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/common/parallel.h"
#include "kernels/matmul/matmul_paths.h"

namespace kvarena::kernels {
namespace {

constexpr int64_t kPanel = PackedMatrix::kPanel;

/// A row of the product by the reference.
std::vector<float> product_row(const Rows& rows, const PackedMatrix& w, int64_t row) {
  std::vector<float> y(static_cast<size_t>(w.n()));
  matmul_reference({rows.x + row * rows.stride, 1, rows.stride, &w, nullptr, y.data(), w.n()}, 0);
  return y;
}

/// c [tile_rows, 32] = a packed tile times one panel, over the whole depth.
void panel_product(const ProductTable& products, const float* tile, int64_t rows, const PackedMatrix& w, int64_t panel,
                   float* c) {
  static thread_local Scratch<float> wide_scratch;
  float* wide = wide_scratch.get(products.depth * kPanel);
  std::fill_n(c, products.tile_rows * kPanel, 0.0F);  // the sum over no depth at all
  for (int64_t depth = 0; depth < w.k(); depth += products.depth) {
    const int64_t steps = std::min(products.depth, w.k() - depth);
    const void* weights = weights_at(products, w, panel, depth, steps, wide);
    products.tile(tile + depth * products.tile_floats, weights, rows, steps, depth == 0, c);
  }
}

/// Calls reduce(first row, rows, tile) for every tile of rows, packed.
template <class F>
void for_tiles(const ProductTable& products, const Rows& rows, const PackedMatrix& w, const F& reduce) {
  const int64_t tiles = (rows.m + products.tile_rows - 1) / products.tile_rows;
  parallel_for(tiles, rows.m * w.k() * w.n(), [&](int64_t t) {
    static thread_local Scratch<float> tile_scratch;
    float* tile = tile_scratch.get(products.tile_floats * w.stored_k());
    const int64_t row = t * products.tile_rows, count = std::min(products.tile_rows, rows.m - row);
    products.pack_tile(rows.x + row * rows.stride, rows.stride, count, w.k(), tile);
    products.enter();
    reduce(row, count, tile);
    products.leave();
  });
}

void check(const Rows& rows, const PackedMatrix& w) {
  require(rows.m >= 0 && (rows.m <= 1 || rows.stride >= w.k()), "row reductions: negative m or overlapping rows");
}

}  // namespace

void row_magnitudes(const Rows& rows, const PackedMatrix& w, float* sums) {
  check(rows, w);
  const MatmulTable* fast = KVARENA_ACTIVE_TABLE(matmul_table);
  if (fast == nullptr) {
    return parallel_for(rows.m, rows.m * w.k() * w.n(), [&](int64_t row) {
      const std::vector<float> y = product_row(rows, w, row);
      sums[row] = static_cast<float>(
          std::accumulate(y.begin(), y.end(), 0.0, [](double sum, float each) { return sum + std::fabs(each); }));
    });
  }
  const ProductTable& products = products_of(*fast, w);
  for_tiles(products, rows, w, [&](int64_t row, int64_t count, const float* tile) {
    static thread_local Scratch<float> scratch;
    const int64_t cells = products.tile_rows * kPanel;
    float* c = scratch.get(2 * cells);
    float* lanes = c + cells;
    std::fill_n(lanes, cells, 0.0F);
    for (int64_t panel = 0; panel < w.panels(); ++panel) {
      panel_product(products, tile, count, w, panel, c);
      fast->add_magnitudes(c, count, lanes);  // columns past n are zero and add nothing
    }
    for (int64_t i = 0; i < count; ++i) {
      sums[row + i] = std::accumulate(lanes + i * kPanel, lanes + (i + 1) * kPanel, 0.0F);
    }
  });
}

void row_peaks(const Rows& rows, const PackedMatrix& w, float* largest, int32_t* column) {
  check(rows, w);
  require(w.n() > 0, "row_peaks: no columns");
  const MatmulTable* fast = KVARENA_ACTIVE_TABLE(matmul_table);
  if (fast == nullptr) {
    return parallel_for(rows.m, rows.m * w.k() * w.n(), [&](int64_t row) {
      const std::vector<float> y = product_row(rows, w, row);
      const auto peak = std::ranges::max_element(y);
      largest[row] = *peak;
      column[row] = static_cast<int32_t>(peak - y.begin());
    });
  }
  const ProductTable& products = products_of(*fast, w);
  for_tiles(products, rows, w, [&](int64_t row, int64_t count, const float* tile) {
    static thread_local Scratch<float> scratch;
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    const int64_t cells = products.tile_rows * kPanel;
    float* c = scratch.get(3 * cells);
    float* best = c + cells;
    float* panels = best + cells;  // where a lane's best is, as a float: whole numbers to 2^24
    std::fill_n(best, cells, kNone);
    std::fill_n(panels, cells, 0.0F);
    for (int64_t panel = 0; panel < w.panels(); ++panel) {
      panel_product(products, tile, count, w, panel, c);
      for (int64_t j = w.n() - panel * kPanel; j < kPanel; ++j) {  // columns past n
        for (int64_t i = 0; i < count; ++i) c[i * kPanel + j] = kNone;
      }
      fast->take_larger(c, count, static_cast<float>(panel), best, panels);
    }
    for (int64_t i = 0; i < count; ++i) {
      const auto column_of = [&](int64_t lane) {
        return static_cast<int32_t>(panels[i * kPanel + lane]) * static_cast<int32_t>(kPanel) +
               static_cast<int32_t>(lane);
      };
      int64_t peak = 0;
      for (int64_t lane = 1; lane < kPanel; ++lane) {
        const float a = best[i * kPanel + lane], b = best[i * kPanel + peak];
        if (a > b || (a == b && column_of(lane) < column_of(peak))) peak = lane;
      }
      largest[row + i] = best[i * kPanel + peak];
      column[row + i] = column_of(peak);
    }
  });
}

}  // namespace kvarena::kernels
