#pragma once
// Internal: the pieces of matmul that have a SIMD version, and the reference.

#include "kernels/common/dispatch.h"
#include "kernels/matmul/matmul.h"

namespace kvarena::kernels {

/// MatmulArgs without classes: what the per-path files may touch (see simd.h on shared inline functions).
struct StreamArgs {
  const float* x;    // rows as the table's pack_few() lays them out
  int64_t m;         // 1 .. few_rows
  const void* data;  // panels as PackedMatrix lays them out
  WeightForm form;
  int64_t n, k;
  int64_t panel_bytes;
  const float* bias;  // [n] or null
  float* y;           // [m, n]
  int64_t y_stride;
};

/// Functions that multiply rows of x by stored weights: in floats, or in tiles on the amx path.
struct ProductTable {
  int64_t few_rows;     // rows that one pass over the weights serves
  int64_t few_floats;   // memory of a step of depth of so many rows
  int64_t tile_rows;    // rows of x in one packed tile
  int64_t tile_floats;  // memory of a step of depth of a tile
  int64_t depth;        // steps of depth of a cache block when there are many rows
  /// Called by a thread before and after the functions below, but not for packing.
  void (*enter)();
  void (*leave)();
  /// Packs m rows for stream().
  void (*pack_few)(const float* x, int64_t x_stride, int64_t m, int64_t k, float* packed);
  /// Multiplies all rows by panels panel_begin .. panel_end-1, bias included.
  void (*stream)(const StreamArgs& args, int64_t panel_begin, int64_t panel_end);
  /// Packs up to tile_rows rows as a tile, missing rows zero.
  void (*pack_tile)(const float* x, int64_t x_stride, int64_t rows, int64_t k, float* tile);
  /// Widens steps first .. first+steps-1 of one panel to float, of which `first` is a multiple of `depth`; null where
  /// products take panels as they are stored.
  void (*widen)(const void* panel, WeightForm form, int64_t first, int64_t steps, float* out);
  /// c [rows, 32] (+)= tile * panel over `depth` steps for the first `rows` rows of the tile; starts from zero when
  /// `first`.
  void (*tile)(const float* tile, const void* panel, int64_t rows, int64_t depth, bool first, float* c);
};

struct MatmulTable {
  ProductTable floats;  // of plain floats
  ProductTable blocks;  // of blocks, which become floats in registers or on the way to the cache
  /// y [rows, columns] = c [rows, 32] + bias [columns], which may be null; columns <= 32.
  void (*write)(const float* c, int64_t rows, int64_t columns, const float* bias, float* y, int64_t y_stride);
  /// lanes [rows, 32] += |c [rows, 32]|.
  void (*add_magnitudes)(const float* c, int64_t rows, float* lanes);
  /// Replaces best by c [rows, 32], and panels by `panel`, wherever c is larger.
  void (*take_larger)(const float* c, int64_t rows, float panel, float* best, float* panels);
};
KVARENA_DECLARE_TABLE(MatmulTable, matmul_table);

namespace amx {
extern const ProductTable tile_products;  // for bf16 weights
}

/// For weights whose products are rounded to bf16.
KVARENA_DECLARE_BF16_TABLE(ProductTable, rounded_products);

/// The functions that multiply by these weights on the active path.
[[nodiscard]] const ProductTable& products_of(const MatmulTable& fast, const PackedMatrix& w);

/// Steps depth .. depth+steps-1 of a panel, steps <= products.depth: where they are stored, or as floats [steps, 32]
/// in `wide`.
[[nodiscard]] const void* weights_at(const ProductTable& products, const PackedMatrix& w, int64_t panel, int64_t depth,
                                     int64_t steps, float* wide);

/// Computes one row of y, each element accumulated in double.
void matmul_reference(const MatmulArgs& args, int64_t row);

}  // namespace kvarena::kernels
