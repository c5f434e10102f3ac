#pragma once
// From logits to a token.

#include <cstdint>
#include <span>
#include <vector>

namespace kvarena {

struct SamplingSettings {
  double temperature = 0;  // 0 = greedy
  int64_t top_k = 0;       // only the k most likely tokens; 0 = all
  double top_p = 1;        // only the most likely tokens that together reach this probability
  uint64_t seed = 0;

  [[nodiscard]] bool greedy() const { return temperature <= 0; }
};

/// The distribution that is sampled from: temperature, then top-k, then top-p, renormalised. [vocab_size], in double.
/// Among equal logits the lower id is the likelier one. Greedy settings give a point mass. Throws UserError when no
/// logit is finite or one is NaN.
[[nodiscard]] std::vector<double> sampling_distribution(std::span<const float> logits,
                                                        const SamplingSettings& settings);

/// Draw `index` of the settings' seed from the distribution; `index` is the position of the new token in its sequence,
/// so that a draw depends neither on how the sequence was produced nor on other requests. Greedy: the largest logit,
/// ties to the lowest id.
[[nodiscard]] int32_t sample(std::span<const float> logits, const SamplingSettings& settings, uint64_t index);

}  // namespace kvarena
