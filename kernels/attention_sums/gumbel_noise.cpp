#include "kernels/attention_sums/gumbel_noise.h"

#include <cmath>
#include <utility>
#include <vector>

namespace kvarena::kernels {
namespace {

/// Quantiles in an order of Fisher and Yates, the first of them again behind the last, so that a run may begin
/// anywhere.
std::vector<float> shuffled_quantiles() {
  std::vector<float> table;
  table.reserve(kGumbelQuantiles + kNoiseRun);
  for (uint64_t i = 0; i < kGumbelQuantiles; ++i) {
    const double uniform = (static_cast<double>(i) + 0.5) / static_cast<double>(kGumbelQuantiles);
    table.push_back(static_cast<float>(-1 / std::log(uniform)));
  }
  for (uint64_t i = kGumbelQuantiles - 1; i > 0; --i) std::swap(table[i], table[mixed(0, i) % (i + 1)]);
  for (int64_t i = 0; i < kNoiseRun; ++i) table.push_back(table[static_cast<size_t>(i)]);
  return table;
}

}  // namespace

std::span<const float> gumbel_table() {
  static const std::vector<float> table = shuffled_quantiles();
  return table;
}

const float* gumbel_factors(uint64_t key, int64_t run) { return gumbel_table().data() + gumbel_place(key, run); }

float gumbel_factor(uint64_t key, int64_t index) { return gumbel_factors(key, index / kNoiseRun)[index % kNoiseRun]; }

}  // namespace kvarena::kernels
