#include "harness/model/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/rope/rope.h"

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
  const auto dimension = [&](double turns) {  // dimension whose frequency makes `turns` turns in the original window
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

double yarn_mscale(const RopeScaling& scaling, double mscale) {
  return scaling.factor <= 1 ? 1.0 : 0.1 * mscale * std::log(scaling.factor) + 1;
}

double yarn_magnitude(const RopeScaling& scaling) {
  if (scaling.attention_factor) return *scaling.attention_factor;
  if (scaling.mscale > 0 && scaling.mscale_all_dim > 0) {
    return yarn_mscale(scaling, scaling.mscale) / yarn_mscale(scaling, scaling.mscale_all_dim);
  }
  return yarn_mscale(scaling, 1.0);
}

/// NTK-aware scaling by the sequence's length: theta grows so that the lowest frequency is interpolated by as much as
/// the sequence outgrows the original window.
double dynamic_theta(const ModelConfig& config, int64_t length) {
  const RopeScaling& scaling = config.rope_scaling;
  const auto original = static_cast<double>(scaling.original_max_position);
  const double grown = std::max(original, static_cast<double>(length));
  const auto dim = static_cast<double>(config.rotary_dim());
  return config.rope_theta * std::pow(scaling.factor * grown / original - (scaling.factor - 1), dim / (dim - 2));
}

/// LongRoPE (arXiv:2402.13753): the factor that keeps the entropy of attention where it was in the original window.
double longrope_magnitude(const RopeScaling& scaling) {
  if (scaling.attention_factor) return *scaling.attention_factor;
  if (scaling.factor <= 1) return 1.0;
  return std::sqrt(1 + std::log(scaling.factor) / std::log(static_cast<double>(scaling.original_max_position)));
}

void divide(std::vector<double>& frequencies, const std::vector<float>& factors) {
  for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
}

/// Tables of rows. Channels that are not rotated have no magnitude either.
void tabulate(const ModelConfig& config, const RopeFrequencies& rope, std::span<const int32_t> positions, float* cos,
              float* sin) {
  const int64_t half = config.turned_dim() / 2, rotated = config.rotary_dim() / 2;
  kernels::rotation_tables(positions.data(), std::ssize(positions), rope.inverse.data(), half, rope.magnitude, cos,
                           sin);
  for (size_t row = 0; rotated < half && row < positions.size(); ++row, cos += half) {
    std::fill(cos + rotated, cos + half, 1.0F);
  }
}

}  // namespace

RopeFrequencies rope_frequencies(const ModelConfig& config, int64_t length) {
  const RopeScaling& scaling = config.rope_scaling;
  const int64_t half = config.rotary_dim() / 2;
  const double theta = scaling.type == RopeScaling::Type::dynamic ? dynamic_theta(config, length) : config.rope_theta;
  RopeFrequencies rope;
  for (int64_t i = 0; i < half; ++i) {
    const double power = std::pow(theta, static_cast<double>(i) / static_cast<double>(half));
    rope.inverse.push_back(1.0F / static_cast<float>(power));  // float32 as in transformers, double is for scalings
  }
  switch (scaling.type) {
    case RopeScaling::Type::none:
    case RopeScaling::Type::dynamic: break;
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
    case RopeScaling::Type::factors: divide(rope.inverse, scaling.frequency_factors); break;
    case RopeScaling::Type::longrope:
      divide(rope.inverse, length > scaling.original_max_position ? scaling.long_factors : scaling.frequency_factors);
      rope.magnitude = static_cast<float>(longrope_magnitude(scaling));
      break;
  }
  rope.inverse.resize(static_cast<size_t>(config.turned_dim() / 2), 0.0);
  return rope;
}

RopeFrequencies own_rope_frequencies(const ModelConfig& config) {
  if (!config.unrotated_layers.empty()) {
    return {.inverse = std::vector<double>(static_cast<size_t>(config.turned_dim() / 2))};
  }
  ModelConfig plain = config;
  plain.rope_theta = config.sliding_rope_theta.value_or(config.rope_theta);
  plain.rope_scaling = {};
  return rope_frequencies(plain);
}

void rotation_rows(const ModelConfig& config, const RopeFrequencies& rope, std::span<const int32_t> positions,
                   std::span<const int64_t> prompts, float* cos, float* sin) {
  const int64_t half = config.turned_dim() / 2;
  const auto rows = static_cast<int64_t>(positions.size());
  tabulate(config, rope, positions, cos, sin);
  if (!config.rope_scaling.by_length()) return;
  RopeFrequencies grown;
  int64_t length = config.rope_scaling.original_max_position;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t own = std::max<int64_t>(prompts[row], positions[row] + 1);
    if (own <= config.rope_scaling.original_max_position) continue;
    if (own != length) grown = rope_frequencies(config, length = own);
    tabulate(config, grown, positions.subspan(static_cast<size_t>(row), 1), cos + row * half, sin + row * half);
  }
}

double rope_score_factor(const RopeScaling& scaling) {
  if (scaling.type != RopeScaling::Type::yarn || scaling.mscale_all_dim <= 0) return 1.0;
  const double mscale = yarn_mscale(scaling, scaling.mscale_all_dim);
  return mscale * mscale;
}

}  // namespace kvarena
