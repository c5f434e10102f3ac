#pragma once
// Internal: rotation of one token's heads and of one cell, and polar coordinates.

#include "kernels/common/dispatch.h"
#include "kernels/rope/rope.h"

namespace kvarena::kernels {

struct RopeTable {
  void (*rotate_token)(const RotateArgs& args, int64_t token);
  /// One key cell; cos and sin [half][16]: lane by lane angles. Lanes outside first..end-1 keep their bits.
  void (*rotate_cell)(DType dtype, int64_t half, void* cell, const float* cos, const float* sin, int64_t first,
                      int64_t end);
  void (*from_polar)(float* lengths, float* angles, int64_t n);
};
KVARENA_DECLARE_TABLE(RopeTable, rope_table);

void rotate_token_reference(const RotateArgs& args, int64_t token);
void rotate_cell_reference(DType dtype, int64_t half, void* cell, const float* cos, const float* sin, int64_t first,
                           int64_t end);
void from_polar_reference(float* lengths, float* angles, int64_t n);

}  // namespace kvarena::kernels
