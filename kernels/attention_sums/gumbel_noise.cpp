#include "kernels/attention_sums/gumbel_noise.h"

#include <cmath>
#include <utility>
#include <vector>

namespace kvarena::kernels {
namespace {

constexpr uint64_t kQuantiles = 65536;

/// SplitMix64's value number `index` of a sequence.
uint64_t mixed(uint64_t sequence, uint64_t index) {
  uint64_t x = sequence + (index + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Quantiles in an order of Fisher and Yates, the first of them again behind the last, so that a run may begin
/// anywhere.
std::vector<float> shuffled_quantiles() {
  std::vector<float> table;
  table.reserve(kQuantiles + kNoiseRun);
  for (uint64_t i = 0; i < kQuantiles; ++i) {
    const double uniform = (static_cast<double>(i) + 0.5) / static_cast<double>(kQuantiles);
    table.push_back(static_cast<float>(-1 / std::log(uniform)));
  }
  for (uint64_t i = kQuantiles - 1; i > 0; --i) std::swap(table[i], table[mixed(0, i) % (i + 1)]);
  for (int64_t i = 0; i < kNoiseRun; ++i) table.push_back(table[static_cast<size_t>(i)]);
  return table;
}

}  // namespace

const float* gumbel_factors(uint64_t key, int64_t run) {
  static const std::vector<float> table = shuffled_quantiles();
  return table.data() + mixed(key, static_cast<uint64_t>(run)) % kQuantiles;
}

float gumbel_factor(uint64_t key, int64_t index) { return gumbel_factors(key, index / kNoiseRun)[index % kNoiseRun]; }

}  // namespace kvarena::kernels
