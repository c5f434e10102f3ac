#include "kernels/matmul/matmul.h"

#include <algorithm>

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

/// Where a step of a panel is stored.
const char* stored_at(const PackedMatrix& w, int64_t panel, int64_t depth) {
  return static_cast<const char*>(w.data()) + (panel * w.k() + depth) * kPanel * size_of(w.dtype());
}

/// Rows of x in tiles, as the table's pack_tile() lays them out: [tiles][k][tile_rows].
struct Tiles {
  const float* data;
  int64_t rows, count;  // rows of a tile; tiles
};

Tiles pack(const MatmulTable& fast, const MatmulArgs& args) {
  const int64_t k = args.w->k(), rows = fast.tile_rows, count = (args.m + rows - 1) / rows;
  static thread_local Scratch<float> scratch;
  float* data = scratch.get(count * rows * k);
  parallel_for(count, args.m * k, [&](int64_t t) {
    const int64_t row = t * rows;
    fast.pack_tile(args.x + row * args.x_stride, args.x_stride, std::min(rows, args.m - row), k, data + row * k);
  });
  return {data, rows, count};
}

/// Asks for the lines that a later part of the work touches first, while this one computes: part i of `parts` of
/// `bytes` from p on.
void fetch_part(const char* p, int64_t bytes, int64_t i, int64_t parts) {
  constexpr int64_t kLine = 64;
  const int64_t lines = (bytes + kLine - 1) / kLine;
  for (int64_t line = lines * i / parts; line < lines * (i + 1) / parts; ++line) {
    __builtin_prefetch(p + line * kLine, 0, 2);
  }
}

/// Asks for rows of y that are written next.
void fetch_rows(const float* y, int64_t rows, int64_t y_stride) {
  for (int64_t i = 0; i < rows; ++i) {
    __builtin_prefetch(y + i * y_stride, 1, 3);
    __builtin_prefetch(y + i * y_stride + kPanel / 2, 1, 3);
  }
}

/// Tiles first .. last-1 times one panel, in cache blocks of its depth.
void block_panel(const MatmulTable& fast, const MatmulArgs& args, const Tiles& tiles, int64_t first, int64_t last,
                 int64_t panel) {
  static thread_local Scratch<float> wide_scratch, c_scratch;
  const PackedMatrix& w = *args.w;
  const int64_t k = w.k();
  const int64_t column = panel * kPanel, columns = std::min(kPanel, w.n() - column);
  float* wide = wide_scratch.get(kDepth * kPanel);
  float* c = c_scratch.get((last - first) * tiles.rows * kPanel);
  for (int64_t depth = 0; depth < k; depth += kDepth) {
    const int64_t steps = std::min(kDepth, k - depth);
    const float* weights = widened(fast, w, panel, depth, steps, wide);
    const char* next = stored_at(w, panel, depth + steps);
    const bool ends = depth + steps == k;
    for (int64_t t = first; t < last; ++t) {
      const int64_t row = t * tiles.rows, rows = std::min(tiles.rows, args.m - row);
      float* sums = c + (t - first) * tiles.rows * kPanel;
      float* y = args.y + row * args.y_stride + column;
      fetch_part(next, kDepth * kPanel * size_of(w.dtype()), t - first, last - first);
      if (ends) fetch_rows(y, rows, args.y_stride);
      fast.tile(tiles.data + (t * k + depth) * tiles.rows, weights, rows, steps, depth == 0, sums);
      if (ends) fast.write(sums, rows, columns, args.bias == nullptr ? nullptr : args.bias + column, y, args.y_stride);
    }
  }
}

/// Many rows: x is packed in tiles once; a work item is a panel for a block of rows.
void block_rows(const MatmulTable& fast, const MatmulArgs& args) {
  const Tiles tiles = pack(fast, args);
  const int64_t panels = args.w->panels(), block_tiles = kBlockRows / tiles.rows;
  const int64_t blocks = (tiles.count + block_tiles - 1) / block_tiles;
  parallel_for(blocks * panels, args.m * args.w->k() * args.w->n(), [&](int64_t item) {
    const int64_t first = item / panels * block_tiles;
    block_panel(fast, args, tiles, first, std::min(tiles.count, first + block_tiles), item % panels);
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

const float* widened(const MatmulTable& fast, const PackedMatrix& w, int64_t panel, int64_t depth, int64_t steps,
                     float* wide) {
  const void* stored = stored_at(w, panel, depth);
  if (w.dtype() == DType::f32) return static_cast<const float*>(stored);
  fast.widen(stored, w.dtype(), steps, wide);
  return wide;
}

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
