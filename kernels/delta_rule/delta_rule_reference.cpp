#include <cmath>

#include "kernels/delta_rule/delta_rule_paths.h"

namespace kvarena::kernels {
namespace {

void convolve(const float* const* rows, const float* weight, float* out, int64_t taps, int64_t channels) {
  for (int64_t c = 0; c < channels; ++c) {
    float sum = 0;
    for (int64_t j = 0; j < taps; ++j) sum = std::fma(weight[j * channels + c], rows[j][c], sum);
    out[c] = sum;
  }
}

void step(const float* q, const float* k, const float* v, float decay, float beta, float* state, float* out,
          int64_t k_dim, int64_t v_dim) {
  for (int64_t c = 0; c < v_dim; ++c) {
    float seen = 0, sum = 0;
    for (int64_t i = 0; i < k_dim; ++i) {
      state[i * v_dim + c] *= decay;
      seen = std::fma(state[i * v_dim + c], k[i], seen);
    }
    const float change = (v[c] - seen) * beta;
    for (int64_t i = 0; i < k_dim; ++i) {
      state[i * v_dim + c] = std::fma(k[i], change, state[i * v_dim + c]);
      sum = std::fma(state[i * v_dim + c], q[i], sum);
    }
    if (out != nullptr) out[c] = sum;
  }
}

}  // namespace

const DeltaRuleTable delta_rule_reference = {convolve, step};

}  // namespace kvarena::kernels
