#pragma once
// Shared by the sources of products that are compiled once per instruction set.

#include "kernels/common/simd.h"
#include "kernels/matmul/matmul_paths.h"

namespace kvarena::kernels {
namespace {

/// Writes sixteen columns of a row of y, bias added; none past n.
KVARENA_INLINE void write16(const StreamArgs& args, int64_t row, int64_t column, F32x16 y) {
  const int64_t left = args.n - column;
  if (left <= 0) return;
  const Mask16 lanes = first_lanes(left);
  if (args.bias != nullptr) y = add(y, load16(args.bias + column, lanes));
  store16(args.y + row * args.y_stride + column, y, lanes);
}

}  // namespace
}  // namespace kvarena::kernels
