#include "harness/model/delta_rule.h"

#include <cmath>

#include "harness/model/products.h"

namespace kvarena {
namespace {

/// log(1 + exp(x)).
float softplus(float x) {
  constexpr float kLinear = 20;  // above it the logarithm is x in float32
  return x > kLinear ? x : std::log1p(std::exp(x));
}

}  // namespace

RecurrentShape state_shape(const ModelConfig& config, const DeltaRule& weights) {
  const DeltaRuleConfig& delta = config.delta;
  return {.k_heads = delta.k_heads,
          .v_heads = delta.v_heads,
          .k_dim = delta.k_dim,
          .v_dim = delta.v_dim,
          .taps = delta.taps,
          .convolution = weights.convolution.data()};
}

const float* delta_input(const DeltaRule& weights, const ModelConfig& config, const float* in, Activations& a) {
  const int64_t width = weights.in.out(), heads = config.delta.v_heads;
  float* const rows = a.heads.at_least(a.rows * width);
  project(weights.in, in, a.rows, a.hidden, rows);
  for (int64_t r = 0; r < a.rows; ++r) {
    float* const decay = rows + r * width + config.delta.channels();
    float* const beta = decay + heads;
    for (int64_t head = 0; head < heads; ++head) {
      decay[head] = std::exp(-weights.decay[head] * softplus(decay[head] + weights.decay_bias[head]));
      beta[head] = 1 / (1 + std::exp(-beta[head]));
    }
  }
  return rows;
}

void delta_output(const DeltaRule& weights, const ModelConfig& config, float* read, float* out, Activations& a) {
  const DeltaRuleConfig& delta = config.delta;
  const int64_t width = weights.in.out(), values = delta.values();
  a.normalise(read, weights.norm, read, a.rows * delta.v_heads, delta.v_dim, delta.v_dim);
  const float* const gates = a.heads.at_least(0) + width - values;
  kernels::silu_mul({gates, read, read, a.rows, values, width, values, values});
  project(weights.output, read, a.rows, values, out);
}

}  // namespace kvarena
