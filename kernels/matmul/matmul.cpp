#include "kernels/matmul/matmul.h"

#include <algorithm>

#include "kernels/common/parallel.h"
#include "kernels/elementwise/elementwise_paths.h"
#include "kernels/matmul/gated_matmul.h"
#include "kernels/matmul/matmul_paths.h"

namespace kvarena::kernels {
namespace {

constexpr int64_t kPanel = PackedMatrix::kPanel;
/// Rows that share a widened block of weights; their packed tiles stay in the second-level cache.
constexpr int64_t kBlockRows = 192;

/// Few rows: the weights are read once, every thread walks its own panels, with few enough rows several at a time.
void stream_rows(const ProductTable& products, const MatmulArgs& args) {
  const int64_t panels = args.w->panels();
  const int64_t bytes_per_panel = args.w->panel_bytes();
  // Below this a parallel region costs more than it saves.
  constexpr int64_t kWorthThreads = 64 * 1024;
  const int64_t threads = args.m * panels * bytes_per_panel < kWorthThreads ? 1 : thread_count();
  // Two items a thread, of whole groups of four panels: enough to even out a disturbed core.
  const int64_t per_item = std::max<int64_t>(4, (panels / (threads * 2) + 3) / 4 * 4);
  const int64_t items = (panels + per_item - 1) / per_item;
  static thread_local Scratch<float> scratch;
  float* x = scratch.get(products.few_floats * args.w->stored_k());
  products.pack_few(args.x, args.x_stride, args.m, args.w->k(), x);
  const StreamArgs plain{x,           args.m,          args.w->data(), args.w->form(), args.w->n(),
                         args.w->k(), bytes_per_panel, args.bias,      args.y,         args.y_stride};
  const auto run = [&](int64_t item) {
    products.enter();
    products.stream(plain, item * per_item, std::min(panels, (item + 1) * per_item));
    products.leave();
  };
  if (threads == 1) {
    for (int64_t item = 0; item < items; ++item) run(item);
  } else {
    parallel_for(items, run);
  }
}

/// Address of a step of a panel; of blocks, about where it lies.
const char* stored_at(const PackedMatrix& w, int64_t panel, int64_t depth) {
  return static_cast<const char*>(w.data()) + panel * w.panel_bytes() + w.panel_bytes() * depth / w.stored_k();
}

/// Rows of x in tiles, as the table's pack_tile() lays them out.
struct Tiles {
  const float* data;
  int64_t rows, count;  // rows of a tile; tiles
};

Tiles pack(const ProductTable& products, const MatmulArgs& args) {
  const int64_t rows = products.tile_rows, count = (args.m + rows - 1) / rows;
  const int64_t floats = args.w->stored_k() * products.tile_floats;
  static thread_local Scratch<float> scratch;
  float* data = scratch.get(count * floats);
  parallel_for(count, args.m * args.w->k(), [&](int64_t t) {
    const int64_t row = t * rows;
    products.pack_tile(args.x + row * args.x_stride, args.x_stride, std::min(rows, args.m - row), args.w->k(),
                       data + t * floats);
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

/// Prefetches rows of y that are written next.
void fetch_rows(const float* y, int64_t rows, int64_t y_stride) {
  for (int64_t i = 0; i < rows; ++i) {
    __builtin_prefetch(y + i * y_stride, 1, 3);
    __builtin_prefetch(y + i * y_stride + kPanel / 2, 1, 3);
  }
}

/// Some tiles of x, a block, that share a panel while it is in the cache.
struct Block {
  const Tiles& tiles;
  int64_t first, last;  // tiles first .. last-1
  int64_t rows;         // of x
};

/// Where a block's products with a panel are written.
struct PanelOutput {
  const MatmulTable& fast;
  float* y;  // of the block's first row and the panel's first column
  int64_t y_stride, columns;
  const float* bias;  // [columns] or null
};

/// sums [rows, 32] = a block times a panel, in cache blocks of its depth, and written to `out` where that is given;
/// `following` is the panel that is multiplied next.
void multiply_panel(const ProductTable& products, const PackedMatrix& w, const Block& block, int64_t panel,
                    int64_t following, float* sums, const PanelOutput* out) {
  static thread_local Scratch<float> scratch;
  const Tiles& tiles = block.tiles;
  float* wide = scratch.get(products.depth * kPanel);
  products.enter();
  for (int64_t depth = 0; depth < w.k(); depth += products.depth) {
    const int64_t steps = std::min(products.depth, w.k() - depth);
    const void* weights = weights_at(products, w, panel, depth, steps, wide);
    const bool ends = depth + steps == w.k();
    const char* next = ends ? stored_at(w, following, 0) : stored_at(w, panel, depth + steps);
    for (int64_t t = block.first; t < block.last; ++t) {
      const int64_t row = (t - block.first) * tiles.rows, rows = std::min(tiles.rows, block.rows - row);
      fetch_part(next, w.panel_bytes() * products.depth / w.stored_k(), t - block.first, block.last - block.first);
      const bool writes = ends && out != nullptr;
      float* y = writes ? out->y + row * out->y_stride : nullptr;
      if (writes) fetch_rows(y, rows, out->y_stride);
      products.tile(tiles.data + (t * w.stored_k() + depth) * products.tile_floats, weights, rows, steps, depth == 0,
                    sums + row * kPanel);
      if (writes) out->fast.write(sums + row * kPanel, rows, out->columns, out->bias, y, out->y_stride);
    }
  }
  products.leave();
}

/// Calls body(block, its first row, panel) for every block of rows and each of `panels`; x is packed in tiles once.
template <class F>
void for_blocks(const ProductTable& products, const MatmulArgs& args, int64_t panels, const F& body) {
  const Tiles tiles = pack(products, args);
  const int64_t block_tiles = kBlockRows / tiles.rows;
  const int64_t blocks = (tiles.count + block_tiles - 1) / block_tiles;
  parallel_for(blocks * panels, args.m * args.w->k() * args.w->n(), [&](int64_t item) {
    const int64_t first = item / panels * block_tiles, row = first * tiles.rows;
    const Block block{tiles, first, std::min(tiles.count, first + block_tiles), std::min(kBlockRows, args.m - row)};
    body(block, row, item % panels);
  });
}

/// Many rows: a work item is a panel for a block of rows.
void block_rows(const MatmulTable& fast, const ProductTable& products, const MatmulArgs& args) {
  for_blocks(products, args, args.w->panels(), [&](const Block& block, int64_t row, int64_t panel) {
    static thread_local Scratch<float> scratch;
    const int64_t column = panel * kPanel;
    const PanelOutput out{.fast = fast,
                          .y = args.y + row * args.y_stride + column,
                          .y_stride = args.y_stride,
                          .columns = std::min(kPanel, args.w->n() - column),
                          .bias = args.bias == nullptr ? nullptr : args.bias + column};
    multiply_panel(products, *args.w, block, panel, panel + 1, scratch.get(kBlockRows * kPanel), &out);
  });
}

/// Writes an empty sum, for k == 0.
void write_empty(const MatmulArgs& args) {
  for (int64_t i = 0; i < args.m; ++i) {
    for (int64_t j = 0; j < args.w->n(); ++j) {
      args.y[i * args.y_stride + j] = args.bias == nullptr ? 0.0f : 0.0f + args.bias[j];
    }
  }
}

}  // namespace

const ProductTable& products_of(const MatmulTable& fast, const PackedMatrix& w) {
#if defined(KVARENA_X86_PATHS)
  if (w.arithmetic() == Arithmetic::bf16) return *KVARENA_ACTIVE_BF16_TABLE(rounded_products);
  if (active_cpu_path() == CpuPath::amx && w.form() == WeightForm::bf16) return amx::tile_products;
#endif
  return is_blocks(w.form()) ? fast.blocks : fast.floats;
}

const void* weights_at(const ProductTable& products, const PackedMatrix& w, int64_t panel, int64_t depth, int64_t steps,
                       float* wide) {
  if (w.form() == WeightForm::f32 || products.widen == nullptr) return stored_at(w, panel, depth);
  products.widen(stored_at(w, panel, 0), w.form(), depth, steps, wide);
  return wide;
}

bool gated_matmul(const MatmulArgs& args, Gate gate) {
  const MatmulTable* fast = KVARENA_ACTIVE_TABLE(matmul_table);
  const int64_t panels = args.w->n() / 2 / kPanel;  // of gates, and as many of ups
  if (fast == nullptr || args.w->n() != 2 * panels * kPanel || args.w->k() == 0 || args.bias != nullptr) return false;
  const ProductTable& products = products_of(*fast, *args.w);
  if (args.m <= products.few_rows) return false;
  require(args.x_stride >= args.w->k() && args.y_stride >= args.w->n() / 2, "gated_matmul: rows overlap");
  const ElementwiseTable& rows_of = *KVARENA_ACTIVE_TABLE(elementwise_table);
  const auto multiply = gate == Gate::gelu ? rows_of.gelu_mul : rows_of.silu_mul;
  for_blocks(products, args, panels, [&](const Block& block, int64_t row, int64_t panel) {
    static thread_local Scratch<float> scratch;
    float* gates = scratch.get(2 * kBlockRows * kPanel);
    float* ups = gates + kBlockRows * kPanel;
    float* y = args.y + row * args.y_stride + panel * kPanel;
    multiply_panel(products, *args.w, block, panel, panels + panel, gates, nullptr);
    fetch_rows(y, block.rows, args.y_stride);
    multiply_panel(products, *args.w, block, panels + panel, panel + 1, ups, nullptr);
    multiply(gates, ups, gates, block.rows * kPanel);
    fast->write(gates, block.rows, kPanel, nullptr, y, args.y_stride);
  });
  return true;
}

void matmul(const MatmulArgs& args) {
  require(args.w != nullptr && args.m >= 0, "matmul: no weights or negative m");
  require(args.m <= 1 || (args.x_stride >= args.w->k() && args.y_stride >= args.w->n()), "matmul: rows overlap");
  if (args.m == 0 || args.w->n() == 0) return;
  if (args.w->k() == 0) return write_empty(args);
  const MatmulTable* fast = KVARENA_ACTIVE_TABLE(matmul_table);
  if (fast == nullptr) {
    return parallel_for(args.m, args.m * args.w->k() * args.w->n(), [&](int64_t row) { matmul_reference(args, row); });
  }
  const ProductTable& products = products_of(*fast, *args.w);
  if (args.m <= products.few_rows) return stream_rows(products, args);
  block_rows(*fast, products, args);
}

}  // namespace kvarena::kernels
