#pragma once
// Normaliser of a softmax.

#include <algorithm>
#include <cmath>
#include <span>

namespace kvarena {

/// log of the sum of exp(logits): a logit less this is the log-probability of its token, in nats.
[[nodiscard]] inline double log_sum_exp(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

}  // namespace kvarena
