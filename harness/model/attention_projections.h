#pragma once
// Projections before and after attention, for each kind: from hidden states to queries and cache entries, and back.

#include <cstdint>
#include <vector>

#include "harness/cache/segment.h"
#include "harness/model/activations.h"
#include "harness/model/config.h"
#include "harness/model/qkv_rows.h"
#include "harness/model/rope_frequencies.h"
#include "harness/model/weights.h"

namespace kvarena {

/// Shape of a layer's entries in the cache. A latent is one key/value head: its key holds the latent and the rotated
/// key, and its value is the key itself, of which the latent's channels are used.
[[nodiscard]] LayerShape cache_shape(const ModelConfig& config, int64_t layer, DType dtype);

/// The rotation of a whole head of the cache: `rope`, and nothing for channels of a latent that are not rotated.
[[nodiscard]] RopeFrequencies cached_rotation(const ModelConfig& config, const RopeFrequencies& rope);

/// Queries, keys and values from `in` [R, hidden_size].
[[nodiscard]] QkvRows attention_input(const HeadAttention& weights, const ModelConfig& config, const float* in,
                                      Activations& a);
/// Queries, keys and values from `in`. Queries are projected to the latent (the form that DeepSeek-V2's paper calls
/// absorbed), so that one latent serves all heads, while prefilling as while decoding.
[[nodiscard]] QkvRows attention_input(const LatentAttention& weights, const ModelConfig& config, const float* in,
                                      Activations& a);

/// Projects attended [R, q_heads, head_dim of the cache] to out [R, hidden_size]. An output gate is that of the last
/// attention_input().
void attention_output(const HeadAttention& weights, const ModelConfig& config, const float* attended, float* out,
                      Activations& a);
void attention_output(const LatentAttention& weights, const ModelConfig& config, const float* attended, float* out,
                      Activations& a);

/// The linear map from attended, past its gate, to out without its bias, [hidden_size, q_heads * head_dim of the
/// cache].
[[nodiscard]] std::vector<float> output_matrix(const HeadAttention& weights, const ModelConfig& config);
[[nodiscard]] std::vector<float> output_matrix(const LatentAttention& weights, const ModelConfig& config);

}  // namespace kvarena
