#pragma once
// The first half of a gated feed-forward network: gates and ups meet in the cache.

#include "kernels/matmul/matmul.h"

namespace kvarena::kernels {

/// Functions of gates: silu_mul()'s and gelu_mul()'s (kernels/elementwise/elementwise.h).
enum class Gate { silu, gelu };

/// y [m, n / 2] = f(x * gates^T) * (x * ups^T), where w holds n / 2 rows of gates and then as many of ups: the bits of
/// matmul() and silu_mul() or gelu_mul(), without both products in memory. Returns false, and writes nothing,
/// where that spares nothing or is not possible: few rows, a bias, halves that are not whole panels.
[[nodiscard]] bool gated_matmul(const MatmulArgs& args, Gate gate);

}  // namespace kvarena::kernels
