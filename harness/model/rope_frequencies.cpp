#include "harness/model/rope_frequencies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "harness/core/error.h"

namespace kvarena {
namespace {

/// Llama 3.1: wavelengths longer than original/low are divided by the factor, shorter than original/high kept, in
/// between interpolated by how many waves fit into the original window.
double scale_llama3(double frequency, const RopeScaling& scaling) {
  const double waves = static_cast<double>(scaling.original_max_position) * frequency / (2 * std::numbers::pi);
  if (waves < scaling.low_freq_factor) return frequency / scaling.factor;
  if (waves > scaling.high_freq_factor) return frequency;
  const double smooth = (waves - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

/// YaRN (Peng et al. 2023, arXiv:2309.00071, section 3.2): a ramp over dimensions between those that turn beta_fast
/// and beta_slow times in the original window.
void scale_yarn(std::vector<double>& frequencies, const ModelConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  const auto half = static_cast<int64_t>(frequencies.size());
  const auto dimension = [&](double turns) {  // where a frequency makes `turns` turns in the original window
    const double position = static_cast<double>(scaling.original_max_position);
    return static_cast<double>(half) * std::log(position / (turns * 2 * std::numbers::pi)) /
           std::log(config.rope_theta);
  };
  double low = dimension(scaling.beta_fast);
  double high = dimension(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(2 * half - 1));
  if (low == high) high += 0.001;  // no division by zero, as in the reference library
  for (int64_t i = 0; i < half; ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] * (1 - ramp) + frequencies[i] / scaling.factor * ramp;
  }
}

double yarn_magnitude(const RopeScaling& scaling) {
  const auto get = [&](double mscale) {
    return scaling.factor <= 1 ? 1.0 : 0.1 * mscale * std::log(scaling.factor) + 1;
  };
  if (scaling.attention_factor) return *scaling.attention_factor;
  if (scaling.mscale > 0 && scaling.mscale_all_dim > 0) return get(scaling.mscale) / get(scaling.mscale_all_dim);
  return get(1.0);
}

}  // namespace

RopeFrequencies rope_frequencies(const ModelConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  const int64_t half = config.head_dim / 2;
  RopeFrequencies rope;
  for (int64_t i = 0; i < half; ++i) {
    rope.inverse.push_back(std::pow(config.rope_theta, -static_cast<double>(i) / static_cast<double>(half)));
  }
  switch (scaling.type) {
    case RopeScaling::Type::none: break;
    case RopeScaling::Type::linear:
      for (double& frequency : rope.inverse) frequency /= scaling.factor;
      break;
    case RopeScaling::Type::llama3:
      for (double& frequency : rope.inverse) frequency = scale_llama3(frequency, scaling);
      break;
    case RopeScaling::Type::yarn:
      scale_yarn(rope.inverse, config);
      rope.magnitude = static_cast<float>(yarn_magnitude(scaling));
      break;
    case RopeScaling::Type::factors:
      for (int64_t i = 0; i < half; ++i) rope.inverse[i] /= scaling.frequency_factors[i];
      break;
    case RopeScaling::Type::dynamic:
      fail({.place = config.name,
            .found = "rope scaling \"dynamic\"",
            .expected = "none, linear, llama3, yarn or frequency factors",
            .action = "dynamic frequencies change with the sequence and contradict keys that are already cached"});
  }
  return rope;
}

}  // namespace kvarena
