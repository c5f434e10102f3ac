#pragma once
// Shared by the sources of products that are compiled once per instruction set.

#include "kernels/common/simd.h"
#include "kernels/matmul/matmul_paths.h"

namespace kvarena::kernels {

/// Rows that weights of blocks are multiplied by in registers.
#if defined(KVARENA_SIMD_AVX512)
static constexpr int64_t kFewBlockRows = 4;
#else
static constexpr int64_t kFewBlockRows = 2;
#endif

namespace KVARENA_SIMD_PATH {  // weight_blocks_simd.cpp
/// Multiplies up to kFewBlockRows rows of x by panels of blocks: ProductTable::stream.
void stream_blocks(const StreamArgs& args, int64_t panel_begin, int64_t panel_end);
/// ProductTable::widen, of blocks; `first` and `steps` are whole runs.
void widen_blocks(const void* panel, WeightForm form, int64_t first, int64_t steps, float* out);
}  // namespace KVARENA_SIMD_PATH

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
