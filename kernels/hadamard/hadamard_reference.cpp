#include <bit>
#include <cmath>
#include <vector>

#include "kernels/hadamard/hadamard_paths.h"

namespace kvarena::kernels {

void hadamard_reference(float* x, int64_t n) {
  // H[i][j] = (-1)^(number of ones in i & j) / sqrt(n), row by row.
  std::vector<float> y(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += std::popcount(static_cast<uint64_t>(i & j)) % 2 == 0 ? x[j] : -x[j];
    y[static_cast<size_t>(i)] = static_cast<float>(sum / std::sqrt(static_cast<double>(n)));
  }
  for (int64_t i = 0; i < n; ++i) x[i] = y[static_cast<size_t>(i)];
}

void hadamard_lanes_reference(float* x, int64_t n) {
  std::vector<float> column(static_cast<size_t>(n));
  for (int64_t lane = 0; lane < 16; ++lane) {
    for (int64_t i = 0; i < n; ++i) column[i] = x[i * 16 + lane];
    hadamard_reference(column.data(), n);
    for (int64_t i = 0; i < n; ++i) x[i * 16 + lane] = column[i];
  }
}

}  // namespace kvarena::kernels
