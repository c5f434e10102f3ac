#pragma once
// Angles per position of rotary embedding, with the scalings that long-context models use.

#include <vector>

#include "harness/model/config.h"

namespace kvarena {

struct RopeFrequencies {
  std::vector<double> inverse;  // [rotary_dim / 2], radians per position
  float magnitude = 1.0F;       // factor on cos and sin (YaRN's attention factor)
};

/// Frequencies for a token that is in a sequence of `length` tokens. Only dynamic NTK scaling depends on the length,
/// and only past the original window.
[[nodiscard]] RopeFrequencies rope_frequencies(const ModelConfig& config, int64_t length = 0);

/// Factor on the scores beside 1/sqrt(head_dim): DeepSeek's YaRN scales them by mscale_all_dim, others by nothing.
[[nodiscard]] double rope_score_factor(const RopeScaling& scaling);

}  // namespace kvarena
