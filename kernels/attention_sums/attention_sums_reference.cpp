#include <cmath>
#include <vector>

#include "kernels/attention_sums/attention_sums_paths.h"
#include "kernels/attention_sums/gumbel_noise.h"

namespace kvarena::kernels {

void add_probabilities_reference(const ProbabilityRows& rows, float* sums, int64_t stride) {
  for (int64_t t = 0; t < rows.tokens; ++t) {
    for (int64_t g = 0; g < rows.group; ++g) {
      for (int64_t p = rows.low[t]; p < rows.high[t]; ++p) {
        sums[g * stride + p] += rows.probability(t * rows.group + g, p);
      }
    }
  }
}

void add_moments_reference(const ProbabilityRows& rows, float* sums, float* squares) {
  for (int64_t t = 0; t < rows.tokens; ++t) {
    for (int64_t p = rows.low[t]; p < rows.high[t]; ++p) {
      float mean = 0;
      for (int64_t g = 0; g < rows.group; ++g) mean += rows.probability(t * rows.group + g, p);
      mean /= static_cast<float>(rows.group);
      sums[p] += mean;
      squares[p] += mean * mean;
    }
  }
}

void add_perturbed_reference(const ProbabilityRows& rows, const uint64_t* keys, float tau, float* sums) {
  for (int64_t row = 0; row < rows.tokens * rows.group; ++row) {
    const int64_t low = rows.low[row / rows.group], high = rows.high[row / rows.group];
    std::vector<double> weights;
    double total = 0;
    for (int64_t p = low; p < high; ++p) {
      double weight = rows.probability(row, p);
      if (keys != nullptr) weight *= gumbel_factor(keys[row], p);
      weights.push_back(std::pow(weight, 1 / static_cast<double>(tau)));
      total += weights.back();
    }
    for (int64_t p = low; p < high; ++p) {
      sums[p] += static_cast<float>(weights[static_cast<size_t>(p - low)] / total);
    }
  }
}

}  // namespace kvarena::kernels
