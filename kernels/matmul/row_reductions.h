#pragma once
// Reductions over the rows of a product, without writing the product.
//
// Products are those of matmul(), bit for bit; they are reduced panel by panel in lanes, and the lanes last, so a row's
// result does not depend on other rows or threads.
//
// Cost: 2*m*n*k flops; of the product no more than a tile lies in memory.

#include "kernels/matmul/matmul.h"

namespace kvarena::kernels {

/// x [m, k], row i at x + i * stride.
struct Rows {
  const float* x = nullptr;
  int64_t m = 0;
  int64_t stride = 0;  // >= k
};

/// sums[i] = sum over j of |x[i] . w[j]|, the L1 norm of row i of x * w^T. w [n, k]; sums [m].
void row_magnitudes(const Rows& rows, const PackedMatrix& w, float* sums);

/// largest[i] = the largest x[i] . w[j], column[i] the first such j. n > 0, and numbers that are numbers.
void row_peaks(const Rows& rows, const PackedMatrix& w, float* largest, int32_t* column);

}  // namespace kvarena::kernels
