#pragma once
// How large rows of a product are, without writing the product.

#include "kernels/matmul/matmul.h"

namespace kvarena::kernels {

/// sums[i] = sum over j of |x[i] . w[j]|, the L1 norm of row i of x * w^T. x [m, k] with rows at distance x_stride;
/// w [n, k]; sums [m]. Products are those of matmul(), bit for bit; their magnitudes are added panel by panel in lanes,
/// and the lanes last, so a row's sum does not depend on other rows or threads.
///
/// Cost: 2*m*n*k flops; of the product no more than a tile lies in memory.
void row_magnitudes(const float* x, int64_t m, int64_t x_stride, const PackedMatrix& w, float* sums);

}  // namespace kvarena::kernels
