#include "kernels/matmul/matmul.h"

#include <cstring>

#include "kernels/common/parallel.h"
#include "kernels/matmul/matmul_paths.h"

namespace kvarena::kernels {
namespace {

constexpr int64_t kPanel = PackedMatrix::kPanel;
/// Rows that share a widened block of weights; their packed tiles stay in the second-level cache.
constexpr int64_t kBlockRows = 192;

/// Few rows: the weights are read once, every thread walks its own panels, four streams at a time.
void stream_rows(const MatmulTable& fast, const MatmulArgs& args) {
  const int64_t panels = args.w->panels();
  const int64_t bytes_per_panel = args.w->k() * kPanel * size_of(args.w->dtype());
  // Below this a parallel region costs more than it saves.
  constexpr int64_t kWorthThreads = 64 * 1024;
  const int64_t threads = args.m * panels * bytes_per_panel < kWorthThreads ? 1 : thread_count();
  // Two items a thread, of whole groups of four panels: enough to even out a disturbed core.
  const int64_t per_item = std::max<int64_t>(4, (panels / (threads * 2) + 3) / 4 * 4);
  const int64_t items = (panels + per_item - 1) / per_item;
  static thread_local Scratch<float> scratch;
  const int64_t m = args.m, k = args.w->k();
  float* x = scratch.get(m * k);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t c = 0; c < k; ++c) x[c * m + i] = args.x[i * args.x_stride + c];
  }
  const StreamArgs plain{x, m, args.w->data(), args.w->dtype(), args.w->n(), k, args.bias, args.y, args.y_stride};
  const auto run = [&](int64_t item) { fast.stream(plain, item * per_item, std::min(panels, (item + 1) * per_item)); };
  if (threads == 1) {
    for (int64_t item = 0; item < items; ++item) run(item);
  } else {
    parallel_for(items, run);
  }
}

/// Adds the bias and writes the part of a tile that exists.
void write_tile(const MatmulArgs& args, int64_t row, int64_t rows, int64_t panel, const float* c) {
  const int64_t column = panel * kPanel, columns = std::min(kPanel, args.w->n() - column);
  for (int64_t i = 0; i < rows; ++i) {
    float* y = args.y + (row + i) * args.y_stride + column;
    if (args.bias == nullptr) {
      std::memcpy(y, c + i * kPanel, static_cast<size_t>(columns) * sizeof(float));
    } else {
      for (int64_t j = 0; j < columns; ++j) y[j] = c[i * kPanel + j] + args.bias[column + j];
    }
  }
}

/// Many rows: x is packed in tiles once; a work item is (block of rows, panel) and walks the depth in cache blocks.
void block_rows(const MatmulTable& fast, const MatmulArgs& args) {
  const PackedMatrix& w = *args.w;
  const int64_t k = w.k(), tile_rows = fast.tile_rows;
  const int64_t tiles = (args.m + tile_rows - 1) / tile_rows;
  static thread_local Scratch<float> packed_scratch;
  float* packed = packed_scratch.get(tiles * tile_rows * k);
  parallel_for(tiles, args.m * k, [&](int64_t t) {
    const int64_t row = t * tile_rows;
    fast.pack_tile(args.x + row * args.x_stride, args.x_stride, std::min(tile_rows, args.m - row), k, packed + row * k);
  });
  const int64_t block_tiles = kBlockRows / tile_rows;
  const int64_t blocks = (tiles + block_tiles - 1) / block_tiles;
  parallel_for(blocks * w.panels(), args.m * k * w.n(), [&](int64_t item) {
    static thread_local Scratch<float> wide_scratch, c_scratch;
    const int64_t block = item / w.panels(), panel = item % w.panels();
    const int64_t first = block * block_tiles, last = std::min(tiles, first + block_tiles);
    float* wide = wide_scratch.get(kDepth * kPanel);
    float* c = c_scratch.get(block_tiles * tile_rows * kPanel);
    const char* stored = static_cast<const char*>(w.data()) + panel * k * kPanel * size_of(w.dtype());
    for (int64_t depth = 0; depth < k; depth += kDepth) {
      const int64_t steps = std::min(kDepth, k - depth);
      const void* source = stored + depth * kPanel * size_of(w.dtype());
      const float* weights = static_cast<const float*>(source);
      if (w.dtype() != DType::f32) {
        fast.widen(source, w.dtype(), steps, wide);
        weights = wide;
      }
      for (int64_t t = first; t < last; ++t) {
        fast.tile(packed + (t * k + depth) * tile_rows, weights, std::min(tile_rows, args.m - t * tile_rows), steps,
                  depth == 0, c + (t - first) * tile_rows * kPanel);
      }
    }
    for (int64_t t = first; t < last; ++t) {
      const int64_t row = t * tile_rows;
      write_tile(args, row, std::min(tile_rows, args.m - row), panel, c + (t - first) * tile_rows * kPanel);
    }
  });
}

/// k == 0: an empty sum.
void write_empty(const MatmulArgs& args) {
  for (int64_t i = 0; i < args.m; ++i) {
    for (int64_t j = 0; j < args.w->n(); ++j) {
      args.y[i * args.y_stride + j] = args.bias == nullptr ? 0.0f : 0.0f + args.bias[j];
    }
  }
}

}  // namespace

void matmul(const MatmulArgs& args) {
  require(args.w != nullptr && args.m >= 0, "matmul: no weights or negative m");
  require(args.m <= 1 || (args.x_stride >= args.w->k() && args.y_stride >= args.w->n()), "matmul: rows overlap");
  if (args.m == 0 || args.w->n() == 0) return;
  if (args.w->k() == 0) return write_empty(args);
  const MatmulTable* fast = KVARENA_ACTIVE_TABLE(matmul_table);
  if (fast == nullptr) {
    parallel_for(args.m, args.m * args.w->k() * args.w->n(), [&](int64_t row) { matmul_reference(args, row); });
  } else if (args.m <= kStreamRows) {
    stream_rows(*fast, args);
  } else {
    block_rows(*fast, args);
  }
}

}  // namespace kvarena::kernels
