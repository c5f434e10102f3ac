#pragma once
// Matrices of floats in NumPy's file format (version 1.0, little-endian f4, C order).

#include <cstdint>
#include <span>
#include <string>

namespace kvarena::cli {

/// The bytes of an .npy file with an array of shape [rows, columns]. `values` has rows * columns elements.
[[nodiscard]] std::string npy_matrix(std::span<const float> values, int64_t rows, int64_t columns);

}  // namespace kvarena::cli
