#pragma once
// Angles per position of rotary embedding, with the scalings that long-context models use.

#include <cstdint>
#include <span>
#include <vector>

#include "harness/model/config.h"

namespace kvarena {

struct RopeFrequencies {
  std::vector<double> inverse;  // [turned_dim / 2], radians per position; 0 behind the first rotary_dim / 2
  float magnitude = 1.0F;       // factor on cos and sin (YaRN's attention factor)
};

/// Frequencies for a token that is in a sequence of `length` tokens, on which those of some scalings depend
/// (RopeScaling::by_length).
[[nodiscard]] RopeFrequencies rope_frequencies(const ModelConfig& config, int64_t length = 0);

/// Frequencies of layers that have a rotation of their own (ModelConfig::has_own_rotation).
[[nodiscard]] RopeFrequencies own_rope_frequencies(const ModelConfig& config);

/// Tables cos, sin [rows, turned_dim / 2] of a pass's rows at `positions`; `rope` are the model's frequencies. Scalings
/// by length rotate a token by the frequencies of the sequence it was fed in: of the whole prompt for a token of the
/// prompt, of the tokens up to itself for a later one; prompts [rows] are the prompts' lengths as far as known.
void rotation_rows(const ModelConfig& config, const RopeFrequencies& rope, std::span<const int32_t> positions,
                   std::span<const int64_t> prompts, float* cos, float* sin);

/// Factor on the scores beside 1/sqrt(head_dim): DeepSeek's YaRN scales them by mscale_all_dim, others by nothing.
[[nodiscard]] double rope_score_factor(const RopeScaling& scaling);

}  // namespace kvarena
