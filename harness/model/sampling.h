#pragma once
// Sampling of a token from logits.

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

/// A drafted token and the distribution it was drawn from, [vocab_size]; an empty one is a point mass on the token.
struct Draft {
  int32_t token = 0;
  std::vector<double> distribution;
};

/// Draw `index` of a drafter, from a stream of its own, with the distribution kept for sample_verified().
[[nodiscard]] Draft sample_draft(std::span<const float> logits, const SamplingSettings& settings, uint64_t index);

/// The token at `index` by rejection sampling against a draft: the drafted token with probability min(1, p/q),
/// otherwise a draw from max(p - q, 0) normalised, so that the result has the distribution p of `logits` whatever q
/// is. It equals the drafted token if and only if that was accepted. Leviathan et al. 2023, arXiv:2211.17192,
/// section 2.3; Chen et al. 2023, arXiv:2302.01318, Theorem 1.
[[nodiscard]] int32_t sample_verified(std::span<const float> logits, const SamplingSettings& settings, uint64_t index,
                                      const Draft& draft);

}  // namespace kvarena
