#pragma once
// A decoder's weights, packed for the matrix kernel.

#include <vector>

#include "harness/model/checkpoint.h"
#include "harness/model/config.h"
#include "kernels/matmul/matmul.h"

namespace kvarena {

struct LayerWeights {
  std::vector<float> attention_norm;  // [hidden_size]
  kernels::PackedMatrix qkv;          // [(q_heads + 2 kv_heads) * head_dim, hidden_size]: queries, keys, values
  std::vector<float> qkv_bias;        // [(q_heads + 2 kv_heads) * head_dim], empty without
  std::vector<float> q_norm;          // [head_dim], empty without
  std::vector<float> k_norm;          // [head_dim], empty without
  kernels::PackedMatrix output;       // [hidden_size, q_heads * head_dim]
  std::vector<float> mlp_norm;        // [hidden_size]
  kernels::PackedMatrix gate_up;      // [2 * intermediate_size, hidden_size]: gates, then ups
  kernels::PackedMatrix down;         // [hidden_size, intermediate_size]
};

struct ModelWeights {
  kernels::PackedMatrix embedding;  // [vocab_size, hidden_size]
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;  // [hidden_size]
  kernels::PackedMatrix lm_head;  // [vocab_size, hidden_size]; empty when tied to the embedding

  [[nodiscard]] const kernels::PackedMatrix& head() const { return lm_head.n() == 0 ? embedding : lm_head; }
  [[nodiscard]] int64_t bytes() const;
};

/// Reads everything a dense decoder of the Llama kind needs, a block of rows at a time: beside the packed weights never
/// more than one block is held. Throws UserError naming the tensor, its shape and the shape the config asks for.
[[nodiscard]] ModelWeights load_weights(const ModelConfig& config, const Checkpoint& checkpoint, kernels::DType dtype);

}  // namespace kvarena
