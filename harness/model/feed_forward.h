#pragma once
// Sparse feed-forward: experts that a router chooses for each token. One expert's network is in products.h.

#include <cstdint>
#include <span>
#include <vector>

#include "harness/model/activations.h"
#include "harness/model/config.h"
#include "harness/model/weights.h"

namespace kvarena {

/// The weighted sum of each row's experts in ascending order of their numbers, then the shared experts. Every row's
/// bits depend on that row alone.
void feed_forward(const SparseFeedForward& weights, const ExpertConfig& config, const float* in, int64_t rows,
                  float* out, Activations& a);

/// An expert that a row visits.
struct ChosenExpert {
  int64_t expert = 0;
  float weight = 0;
};

/// Experts of one token by ascending number. logits [experts] of the router; correction [experts] or empty. Ties go to
/// the lower number.
[[nodiscard]] std::vector<ChosenExpert> choose_experts(const ExpertConfig& config, std::span<const float> logits,
                                                       std::span<const float> correction);

}  // namespace kvarena
