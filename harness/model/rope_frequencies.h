#pragma once
// Angles per position of rotary embedding, with the scalings that long-context models use.

#include <vector>

#include "harness/model/config.h"

namespace kvarena {

struct RopeFrequencies {
  std::vector<double> inverse;  // [head_dim / 2], radians per position
  float magnitude = 1.0F;       // factor on cos and sin (YaRN's attention factor)
};

/// Frequencies of a model. Throws UserError for dynamic NTK scaling, whose frequencies change with the length of the
/// sequence and so cannot agree with keys that are already in the cache.
[[nodiscard]] RopeFrequencies rope_frequencies(const ModelConfig& config);

}  // namespace kvarena
