#include "kernels/cells/cells_paths.h"
#include "kernels/common/simd.h"

namespace kvarena::kernels {
namespace {

/// 16 rows of 16 channels at a time go through a square of floats; the compiler turns the inner loops into shuffles.
KVARENA_INLINE void transpose(const float* from, float* to) {
  for (int i = 0; i < kLanes; ++i) {
    for (int j = 0; j < kLanes; ++j) to[j * kLanes + i] = from[i * kLanes + j];
  }
}

template <class T>
void store_format(CellKind kind, int64_t head_dim, void* cell, const float* rows, int64_t row_stride) {
  auto* stored = static_cast<typename T::Stored*>(cell);
  for (int64_t c = 0; c < head_dim; c += kLanes) {
    alignas(64) float square[kLanes * kLanes], turned[kLanes * kLanes];
    for (int r = 0; r < kLanes; ++r) {
      const F32x16 x = load16(rows + r * row_stride + c);
      if (kind == CellKind::values) {
        store16(T{}, stored + r * head_dim + c, x);
      } else {
        store16(square + r * kLanes, x);
      }
    }
    if (kind == CellKind::values) continue;
    transpose(square, turned);
    for (int j = 0; j < kLanes; ++j) store16(T{}, stored + (c + j) * kLanes, load16(turned + j * kLanes));
  }
}

template <class T>
void load_format(CellKind kind, int64_t head_dim, const void* cell, float* rows, int64_t row_stride) {
  const auto* stored = static_cast<const typename T::Stored*>(cell);
  for (int64_t c = 0; c < head_dim; c += kLanes) {
    if (kind == CellKind::values) {
      for (int r = 0; r < kLanes; ++r) {
        store16(rows + r * row_stride + c, load16(T{}, stored + r * head_dim + c));
      }
      continue;
    }
    alignas(64) float square[kLanes * kLanes], turned[kLanes * kLanes];
    for (int j = 0; j < kLanes; ++j) store16(square + j * kLanes, load16(T{}, stored + (c + j) * kLanes));
    transpose(square, turned);
    for (int r = 0; r < kLanes; ++r) store16(rows + r * row_stride + c, load16(turned + r * kLanes));
  }
}

void store_cell(CellKind kind, DType dtype, int64_t head_dim, void* cell, const float* rows, int64_t row_stride) {
  with_format(static_cast<int>(dtype),
              [&](auto format) { store_format<decltype(format)>(kind, head_dim, cell, rows, row_stride); });
}

void load_cell(CellKind kind, DType dtype, int64_t head_dim, const void* cell, float* rows, int64_t row_stride) {
  with_format(static_cast<int>(dtype),
              [&](auto format) { load_format<decltype(format)>(kind, head_dim, cell, rows, row_stride); });
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const CellsTable cells_table;
const CellsTable cells_table = {store_cell, load_cell};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
