#pragma once
// Products with a short inner side, added to what is there.

#include <cstdint>

namespace kvarena::kernels {

/// y[r, c] += sum over k of a[r, k] b[k, c], k ascending: entries that share low-rank factors, in one head. The SIMD
/// paths fuse and have equal bits.
struct SmallProduct {
  float* y = nullptr;  // [rows, columns]
  int64_t y_stride = 0;
  const float* a = nullptr;  // [rows, rank], number k of row r at r * a_row_stride + k * a_stride
  int64_t a_row_stride = 0, a_stride = 1;
  const float* b = nullptr;  // [rank, columns]
  int64_t rows = 0, columns = 0, rank = 0;
};
void add_product(const SmallProduct& product);

}  // namespace kvarena::kernels
