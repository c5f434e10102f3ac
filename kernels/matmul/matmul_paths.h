#pragma once
// Internal: the pieces of matmul that have a SIMD version, and the reference.

#include "kernels/common/dispatch.h"
#include "kernels/matmul/matmul.h"

namespace kvarena::kernels {

/// Rows that one pass over the weights serves when there are few rows.
inline constexpr int64_t kStreamRows = 12;
/// Depth of a cache block when there are many rows: kDepth * 32 floats of weights and a tile of rows fit the
/// first-level cache, of 32 KiB with six rows to a tile and of 48 KiB with twelve.
inline constexpr int64_t kDepth = 192;

/// MatmulArgs without classes: what the per-path files may touch (see simd.h on shared inline functions).
struct StreamArgs {
  const float* x;    // [k][m]: rows side by side, so that one pointer serves them all
  int64_t m;         // 1 .. kStreamRows
  const void* data;  // [panels][k][32] of dtype
  DType dtype;
  int64_t n, k;
  const float* bias;  // [n] or null
  float* y;           // [m, n]
  int64_t y_stride;
};

struct MatmulTable {
  int64_t tile_rows;  // rows of x in one packed tile
  /// All rows of panels panel_begin .. panel_end-1, bias included.
  void (*stream)(const StreamArgs& args, int64_t panel_begin, int64_t panel_end);
  /// Rows of x as tiles: [tiles][k][tile_rows], missing rows zero.
  void (*pack_tile)(const float* x, int64_t x_stride, int64_t rows, int64_t k, float* tile);
  /// Widens depth rows of one panel to float.
  void (*widen)(const void* panel, DType dtype, int64_t depth, float* out);
  /// c [rows, 32] (+)= tile * panel over `depth` steps for the first `rows` rows of the tile; starts from zero when
  /// `first`.
  void (*tile)(const float* tile, const float* panel, int64_t rows, int64_t depth, bool first, float* c);
  /// y [rows, columns] = c [rows, 32] + bias [columns], which may be null; columns <= 32.
  void (*write)(const float* c, int64_t rows, int64_t columns, const float* bias, float* y, int64_t y_stride);
  /// lanes [rows, 32] += |c [rows, 32]|.
  void (*add_magnitudes)(const float* c, int64_t rows, float* lanes);
  /// Where c [rows, 32] is larger than best, it takes best's place and `panel` that of panels.
  void (*take_larger)(const float* c, int64_t rows, float panel, float* best, float* panels);
};
KVARENA_DECLARE_TABLE(MatmulTable, matmul_table);

/// Steps depth .. depth+steps-1 of a panel, steps <= kDepth, as floats [steps, 32]: where they are stored, or widened
/// into `wide`.
[[nodiscard]] const float* widened(const MatmulTable& fast, const PackedMatrix& w, int64_t panel, int64_t depth,
                                   int64_t steps, float* wide);

/// One element per (i, j), accumulated in double.
void matmul_reference(const MatmulArgs& args, int64_t row);

}  // namespace kvarena::kernels
