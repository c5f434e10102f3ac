#pragma once
// Pieces of a layer whose tokens pass a state by the gated delta rule (Yang et al. 2024, arXiv:2412.06464), token by
// token in ascending order. A token's bits depend on itself and the tokens before it alone, never on how many come in
// one call.

#include <cstdint>

namespace kvarena::kernels {

/// A causal convolution over time of each channel by itself. x and out are rows at distance *_stride elements.
struct ShortConvolutionArgs {
  const float* x = nullptr;       // [tokens, channels]
  const float* before = nullptr;  // [taps - 1, channels], the tokens before x
  const float* weight = nullptr;  // [taps, channels]
  float* out = nullptr;           // [tokens, channels]; not x
  int64_t tokens = 0, channels = 0, taps = 0;
  int64_t x_stride = 0, out_stride = 0;
};
/// out[t, c] = sum over j of weight[j, c] * x[t - taps + 1 + j, c], j ascending, fused.
void short_convolution(const ShortConvolutionArgs& args);

/// Heads of values read the query and key of head h * k_heads / v_heads. Rows at distance *_stride elements.
struct DeltaRuleArgs {
  const float* q = nullptr;      // [tokens, k_heads, k_dim]
  const float* k = nullptr;      // [tokens, k_heads, k_dim]
  const float* v = nullptr;      // [tokens, v_heads, v_dim]
  const float* decay = nullptr;  // [tokens, v_heads], factors on the state
  const float* beta = nullptr;   // [tokens, v_heads]
  float* state = nullptr;        // [v_heads, k_dim, v_dim]
  float* out = nullptr;          // [tokens, v_heads, v_dim]; null where nobody wants it
  int64_t tokens = 0, k_heads = 0, v_heads = 0, k_dim = 0, v_dim = 0;
  int64_t qkv_stride = 0, gate_stride = 0, out_stride = 0;
};
/// For each token: S *= decay; d = (v - S^T k) * beta; S += k d^T; out = S^T q. Sums run over k_dim ascending and
/// fused, with lanes over v_dim, so every path gives equal bits.
void delta_rule(const DeltaRuleArgs& args);

}  // namespace kvarena::kernels
