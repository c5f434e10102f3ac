#pragma once
// The k best of a row: larger score first, among equals the LOWER index. -0 equals 0.

#include <cstdint>

namespace kvarena::kernels {

/// Writes the min(k, n) chosen indices of scores [n] to index in ascending order and returns their number. Returns -1
/// and writes nothing when a score is NaN: the caller knows whose scores they are and names them in its error.
[[nodiscard]] int64_t top_k(const float* scores, int64_t n, int64_t k, int32_t* index);

/// Rows in parallel: row r of scores at scores + r * score_stride, result at index + r * k (needs k <= n). Returns the
/// first row that holds NaN, or -1 when all went well.
[[nodiscard]] int64_t top_k_rows(const float* scores, int64_t rows, int64_t n, int64_t score_stride, int64_t k,
                                 int32_t* index);

}  // namespace kvarena::kernels
