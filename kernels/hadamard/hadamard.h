#pragma once
// Normalised Walsh-Hadamard transform: H_1 = [1], H_2n = [[H_n, H_n], [H_n, -H_n]], divided by sqrt(n). Symmetric and
// its own inverse; keeps lengths and dot products.

#include <cstdint>

namespace kvarena::kernels {

/// Transforms rows [rows, n] in place, row r at x + r * stride. n is a power of two. Butterflies from distance 1
/// upwards, the factor last; a row's bits depend on that row alone and are the same on every path.
void hadamard(float* x, int64_t rows, int64_t n, int64_t stride);

/// Transforms the 16 columns of each block [n, 16] in place, block b at x + b * stride: as hadamard() transforms rows,
/// with its bits, where cells hold a channel of 16 entries side by side.
void hadamard_lanes(float* x, int64_t blocks, int64_t n, int64_t stride);

}  // namespace kvarena::kernels
