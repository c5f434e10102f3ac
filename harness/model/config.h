#pragma once
// Sizes and features of a transformer, read from a checkpoint's own description.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/dtype.h"

namespace kvarena {

class GgufFile;

/// Change of rotary frequencies that extends the window of pre-training. Each number has the meaning of the Hugging
/// Face key of its name.
struct RopeScaling {
  enum class Type : uint8_t {
    none,
    linear,   // positions divided by factor
    dynamic,  // NTK-aware: theta grows once the sequence passes original_max_position
    llama3,   // low frequencies divided by factor, high ones kept, in between smoothed
    yarn,     // as llama3 by wavelength ramp, and attention scaled by attention_factor
    factors,  // frequency i divided by frequency_factors[i] (GGUF's form of llama3)
    longrope  // the same, and by long_factors[i] in sequences past original_max_position (Phi)
  };
  Type type = Type::none;
  double factor = 1.0;
  int64_t original_max_position = 0;
  double low_freq_factor = 1.0;   // llama3
  double high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0;        // yarn
  double beta_slow = 1.0;         // yarn
  /// yarn; absent: 0.1 ln(factor) + 1, or from mscale and mscale_all_dim. longrope; absent: from factor and window.
  std::optional<double> attention_factor;
  double mscale = 0.0;                   // yarn in DeepSeek models
  double mscale_all_dim = 0.0;           // yarn in DeepSeek models
  bool truncate = true;                  // yarn: round the ramp's ends to whole dimensions
  std::vector<float> frequency_factors;  // [rope_dim / 2], factors and longrope
  std::vector<float> long_factors;       // [rope_dim / 2], longrope

  /// Whether frequencies depend on the length of the sequence that a token is fed in, past original_max_position.
  [[nodiscard]] bool by_length() const { return type == Type::dynamic || type == Type::longrope; }
};
[[nodiscard]] std::string_view to_string(RopeScaling::Type type);

/// Sparse feed-forward layers.
struct ExpertConfig {
  int64_t experts = 0;  // 0: every layer is dense
  int64_t experts_per_token = 0;
  int64_t intermediate_size = 0;         // size of one expert
  int64_t shared_experts = 0;            // experts that every token visits
  int64_t shared_intermediate_size = 0;  // size of all shared experts together
  int64_t first_sparse_layer = 0;        // layers before it are dense
  int64_t sparse_step = 1;               // layer l is sparse when (l + 1) % sparse_step == 0
  std::vector<int64_t> dense_layers;     // exceptions
  bool normalize_weights = false;        // weights of the chosen experts divided by their sum
  double weight_scale = 1.0;
  bool sigmoid_scores = false;   // sigmoids choose (DeepSeek v3, Llama 4); otherwise a softmax
  bool correction = false;       // a bias is added to scores when choosing (DeepSeek v3)
  bool biases = false;           // of router and experts (gpt-oss)
  bool weighted_inputs = false;  // a weight multiplies what its expert reads, not what it gives (Llama 4)
  bool shared_gate = false;      // what the shared experts give is multiplied by a sigmoid (Qwen3-Next)
  int64_t groups = 1;            // experts are chosen from groups_per_token groups of `groups`
  int64_t groups_per_token = 1;
};

/// Multi-head latent attention (DeepSeek): keys and values share a latent of kv_lora_rank.
struct LatentAttentionConfig {
  int64_t kv_lora_rank = 0;  // 0: ordinary attention
  int64_t q_lora_rank = 0;   // 0: queries are projected directly
  int64_t nope_head_dim = 0;
  int64_t rope_head_dim = 0;
  int64_t v_head_dim = 0;

  /// Channels of a cached entry: the latent's and the rotated key's, in the order of an ordinary head, whose channels c
  /// and c + width / 2 are rotated together. So each half begins with its half of the rotated key, followed by its half
  /// of the latent.
  [[nodiscard]] int64_t width() const { return kv_lora_rank + rope_head_dim; }
  [[nodiscard]] int64_t latent_channel(int64_t i) const {
    const int64_t part = kv_lora_rank / 2;
    return i / part * (width() / 2) + rope_head_dim / 2 + i % part;
  }
  /// Place in a cached entry of rotated channel i in half-split order.
  [[nodiscard]] int64_t rotated_channel(int64_t i) const {
    const int64_t part = rope_head_dim / 2;
    return i / part * (width() / 2) + i % part;
  }
};

/// Layers whose tokens pass a state by the gated delta rule, in place of attention (Qwen3-Next).
struct DeltaRuleConfig {
  int64_t k_heads = 0;  // 0: all layers attend
  int64_t v_heads = 0;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  int64_t taps = 0;             // tokens that the convolution in front of the rule sees
  bool negative_decay = false;  // the checkpoint holds -exp(A_log) in its place (GGUF)

  [[nodiscard]] int64_t keys() const { return k_heads * k_dim; }
  [[nodiscard]] int64_t values() const { return v_heads * v_dim; }
  /// Queries, keys and values of a token, which the convolution sees.
  [[nodiscard]] int64_t channels() const { return 2 * keys() + values(); }
};

struct ModelConfig {
  std::string architecture;  // Architecture::name
  std::string name;          // as the checkpoint calls itself; the folder's or file's name otherwise
  int64_t layers = 0;
  int64_t hidden_size = 0;
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;  // head size of queries and keys; may differ from hidden_size / q_heads
  int64_t intermediate_size = 0;
  int64_t vocab_size = 0;
  int64_t max_position = 0;  // the window: prompt and answer together, as far as rope scaling reaches
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  /// Layers with a window are rotated by this theta and no scaling (Gemma 3); absent: as all others.
  std::optional<double> sliding_rope_theta;
  std::vector<bool> unrotated_layers;  // [layers]; empty: every layer is rotated
  int64_t rotated_channels = 0;        // of a head, the first ones (Phi-4-mini, GLM-4); 0: all
  bool rope_interleaved = false;       // rotation pairs are neighbours, not i and i + rotary_dim / 2
  double rms_norm_eps = 1e-6;
  bool tie_embeddings = false;  // the output matrix is the embedding matrix
  bool qkv_bias = false;
  bool output_bias = false;  // bias of the attention's output projection
  bool mlp_bias = false;
  bool qk_norm = false;              // RMS norm of each head's queries and keys (Qwen3)
  bool qk_norm_whole = false;        // that norm is of all heads together (OLMo 2)
  bool unit_qk_norm = false;         // heads of rotated layers have that norm without weights (Llama 4)
  bool output_gate = false;          // sigmoids beside queries multiply what these attend to (Qwen3-Next)
  bool attention_sinks = false;      // each head's softmax has one more logit, of nothing (gpt-oss)
  int64_t sliding_window = 0;        // 0: every token sees all before it
  std::vector<bool> sliding_layers;  // [layers], which of them have the window; empty: all
  bool chunked_window = false;       // a token sees back to the last multiple of the window (Llama 4)
  double embedding_scale = 1;        // factor on embeddings
  double residual_scale = 1;         // factor on what attention and feed-forward add to the stream (Granite)
  bool input_norms = true;           // RMS norms of what attention and feed-forward read; none in OLMo 2
  bool output_norms = false;         // RMS norms of what attention and feed-forward add to the stream
  bool norms_less_one = false;       // the checkpoint holds weights of norms less 1 (Gemma in Hugging Face layout)
  bool gelu = false;                 // gates go through GELU in its form by tanh, else through SiLU (Gemma)
  double gate_limit = 0;             // experts have a clamped gate (kernels::clamped_mul) of this limit; 0: not
  double query_scalar = 0;           // scores are divided by its square root; 0: by that of head_dim
  /// Queries of unrotated layers grow with their position p: times 1 + temperature ln(1 + floor((p + 1) /
  /// temperature_step)) (Llama 4).
  double temperature = 0;
  int64_t temperature_step = 8192;
  double logit_scale = 1;  // factor on logits (Granite)
  double logit_cap = 0;    // logits are capped to cap * tanh(logit / cap) (Gemma 2); 0: not
  ExpertConfig expert;
  LatentAttentionConfig latent;
  DeltaRuleConfig delta;
  std::vector<bool> recurrent_layers;  // [layers], which have a state by `delta` and no entries; empty: none
  std::optional<int32_t> bos;
  std::vector<int32_t> eos;                    // tokens that end an answer
  kernels::DType dtype = kernels::DType::f32;  // dtype of the weights as published; f32 for block-quantised ones

  [[nodiscard]] int64_t group() const { return q_heads / kv_heads; }
  [[nodiscard]] bool is_latent() const { return latent.kv_lora_rank > 0; }
  /// Channels of a head that are rotated.
  [[nodiscard]] int64_t rotary_dim() const {
    return is_latent() ? latent.rope_head_dim : rotated_channels > 0 ? rotated_channels : head_dim;
  }
  /// Channels of a head that a pass turns, by nothing where they are not rotated.
  [[nodiscard]] int64_t turned_dim() const { return is_latent() ? latent.rope_head_dim : head_dim; }
  [[nodiscard]] bool is_sparse_layer(int64_t layer) const;
  [[nodiscard]] bool is_sliding_layer(int64_t layer) const;
  [[nodiscard]] bool is_recurrent(int64_t layer) const { return !recurrent_layers.empty() && recurrent_layers[layer]; }
  /// Number of the layers that hold entries. Caches, hooks and methods know these alone and number them from 0.
  [[nodiscard]] int64_t cached_layers() const;
  [[nodiscard]] bool is_rotated(int64_t layer) const { return unrotated_layers.empty() || !unrotated_layers[layer]; }
  /// Whether some layers are not rotated like the others: by sliding_rope_theta, or by nothing.
  [[nodiscard]] bool two_rotations() const { return sliding_rope_theta || !unrotated_layers.empty(); }
  [[nodiscard]] bool has_own_rotation(int64_t layer) const {
    return !is_rotated(layer) || (sliding_rope_theta && is_sliding_layer(layer));
  }
};

/// Reads config.json, and the end-of-sequence ids of generation_config.json beside it when there is one.
/// Throws UserError naming file and key: missing keys, wrong types, unknown architectures or rope types, sizes that
/// contradict each other.
[[nodiscard]] ModelConfig read_hf_config(const std::filesystem::path& config_json);

/// Reads the metadata of a GGUF file. Same errors.
[[nodiscard]] ModelConfig read_gguf_config(const GgufFile& file);

/// Widens max_position where a scaling that makes it larger (dynamic, yarn) is described beside the window before it.
void extend_window(ModelConfig& config);

/// Throws UserError, beginning with `place`, unless sizes are positive, heads divisible, ids inside the vocabulary.
void check_config(const ModelConfig& config, const std::string& place);

}  // namespace kvarena
