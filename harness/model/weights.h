#pragma once
// A decoder's weights, packed for the matrix kernel.

#include <optional>
#include <variant>
#include <vector>

#include "harness/model/checkpoint.h"
#include "harness/model/config.h"
#include "kernels/matmul/matmul.h"

namespace kvarena {

/// y = x * w^T + bias.
struct Projection {
  std::vector<kernels::PackedMatrix> parts;  // one below the other w [out, in]: several where forms of rows differ
  std::vector<float> bias;                   // [out], empty without

  [[nodiscard]] int64_t out() const;
  [[nodiscard]] int64_t in() const { return parts.front().k(); }
};

/// One matrix [n, k] a head: y[h] = x[h] * matrices[h]^T.
using HeadProjections = std::vector<kernels::PackedMatrix>;

/// Attention over keys and values of kv_heads heads.
struct HeadAttention {
  /// [(q_heads + 2 kv_heads) * head_dim, hidden_size]: queries, keys, values; with an output gate its q_heads *
  /// head_dim rows before these.
  Projection qkv;
  std::vector<float> q_norm;    // [head_dim], or [q_heads * head_dim] of all heads together; empty without
  std::vector<float> k_norm;    // as q_norm, of kv_heads
  std::vector<float> sinks;     // [q_heads], empty without
  float query_scale = 1;        // factor on queries, where scores are not scaled by 1 / sqrt(head_dim)
  bool by_temperature = false;  // queries grow with their position (ModelConfig::temperature)
  Projection output;            // [hidden_size, q_heads * head_dim]
};

/// Attention over a shared latent (DeepSeek). Rows of rotated parts are in half-split order; `width` is that of a
/// cached entry, with its order of channels (LatentAttentionConfig).
struct LatentAttention {
  std::optional<Projection> q_down;  // [q_lora_rank, hidden_size], absent when queries are projected at once
  std::vector<float> q_norm;         // [q_lora_rank]
  Projection q;                      // [q_heads * (nope + rope), q_lora_rank or hidden_size]
  Projection latent;                 // [kv_lora_rank + rope, hidden_size]
  std::vector<float> latent_norm;    // [kv_lora_rank]
  HeadProjections to_latent;         // [q_heads] of [width, nope]: takes queries to the latent
  HeadProjections to_value;          // [q_heads] of [v_head_dim, width]
  Projection output;                 // [hidden_size, q_heads * v_head_dim]
};

/// The gated delta rule in place of attention; sizes as in DeltaRuleConfig.
struct DeltaRule {
  Projection in;                   // [channels + 2 v_heads + values, hidden_size]: a RecurrentState's rows, then gates
  std::vector<float> convolution;  // [taps, channels]
  std::vector<float> decay;        // [v_heads], exp(A_log): a head's decay is exp(-decay * softplus(row + bias))
  std::vector<float> decay_bias;   // [v_heads]
  std::vector<float> norm;         // [v_dim], of what each head reads of the state
  Projection output;               // [hidden_size, values]
};

struct DenseFeedForward {
  Projection gate_up;  // [2 * size, hidden_size]: gates, then ups
  Projection down;     // [hidden_size, size]
  bool gelu = false;   // gates go through GELU, else through SiLU
  float limit = 0;     // above 0: they are clamped (kernels::clamped_mul)
};

struct SparseFeedForward {
  Projection router;              // [experts, hidden_size], always float32: a rounding may change who is chosen
  std::vector<float> correction;  // [experts], added to scores when choosing; empty without
  std::vector<DenseFeedForward> experts;
  std::optional<DenseFeedForward> shared;
  std::optional<Projection> shared_gate;  // [1, hidden_size], whose sigmoid multiplies what `shared` gives
};

struct LayerWeights {
  std::vector<float> attention_norm;  // [hidden_size]; empty without
  std::variant<HeadAttention, LatentAttention> attention;
  std::optional<DeltaRule> recurrent;     // in place of attention
  std::vector<float> attention_out_norm;  // [hidden_size], of what attention adds to the stream; empty without
  std::vector<float> mlp_norm;            // [hidden_size]; empty without
  std::variant<DenseFeedForward, SparseFeedForward> mlp;
  std::vector<float> mlp_out_norm;  // [hidden_size], of what the feed-forward adds; empty without
};

struct ModelWeights {
  Projection embedding;  // [vocab_size, hidden_size]
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;      // [hidden_size]
  std::optional<Projection> lm_head;  // [vocab_size, hidden_size]; absent when tied to the embedding
  int64_t matrix_bytes = 0;           // bytes of all matrices
  int64_t matrix_numbers = 0;         // their weights

  [[nodiscard]] const Projection& head() const { return lm_head ? *lm_head : embedding; }
};

/// Reads everything the config's architecture needs, a block of rows at a time: beside the packed weights never more
/// than one block is held. Without `dtype` every matrix keeps the form in which the checkpoint stores it. Throws
/// UserError naming the tensor, its shape and the shape the config asks for, or a tensor of a layer that the
/// architecture has no place for.
[[nodiscard]] ModelWeights load_weights(const ModelConfig& config, const Checkpoint& checkpoint,
                                        std::optional<kernels::DType> dtype,
                                        kernels::Arithmetic arithmetic = kernels::Arithmetic::exact);

}  // namespace kvarena
