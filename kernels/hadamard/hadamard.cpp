#include "kernels/hadamard/hadamard.h"

#include "kernels/common/parallel.h"
#include "kernels/hadamard/hadamard_paths.h"

namespace kvarena::kernels {

void hadamard(float* x, int64_t rows, int64_t n, int64_t stride) {
  require(n > 0 && (n & (n - 1)) == 0, "hadamard: n must be a power of two");
  const HadamardTable* fast = KVARENA_ACTIVE_TABLE(hadamard_table);
  const auto one = fast != nullptr ? fast->row : hadamard_reference;
  constexpr int64_t kBlock = 32;
  const auto block = [&](int64_t b) {
    for (int64_t r = b * kBlock; r < std::min(rows, (b + 1) * kBlock); ++r) one(x + r * stride, n);
  };
  if (rows >= 4 * kBlock) return parallel_for((rows + kBlock - 1) / kBlock, block);
  for (int64_t b = 0; b * kBlock < rows; ++b) block(b);
}

void hadamard_lanes(float* x, int64_t blocks, int64_t n, int64_t stride) {
  require(n > 0 && (n & (n - 1)) == 0, "hadamard_lanes: n must be a power of two");
  const HadamardTable* fast = KVARENA_ACTIVE_TABLE(hadamard_table);
  const auto one = fast != nullptr ? fast->lanes : hadamard_lanes_reference;
  for (int64_t b = 0; b < blocks; ++b) one(x + b * stride, n);
}

}  // namespace kvarena::kernels
