#pragma once
// The sizes of a model on which its costs depend.

#include <cstdint>
#include <filesystem>
#include <string>

namespace kvarena {
class ParameterVisitor;
}

namespace kvarena::cost_model {

/// Kernels that a program launches in a pass when it runs layers operation by operation, as Hugging Face's models do:
/// 40 a layer (8 of each of two norms, 12 of rotation, products, residuals and attention) and 16 more where queries and
/// keys are normalised.
[[nodiscard]] inline double kernels_of(int64_t layers, bool qk_norm) {
  return static_cast<double>(layers * (qk_norm ? 56 : 40));
}

struct ModelShape {
  std::string name;    // name of the file, without extension
  std::string title;   // as its makers call it
  std::string source;  // place of the published sizes
  int64_t layers = 0;
  int64_t hidden_size = 0;
  int64_t q_heads = 0;
  int64_t kv_heads = 0;  // cached ones; a latent counts by its own sizes below
  int64_t head_dim = 0;
  int64_t intermediate_size = 0;
  int64_t vocab_size = 0;
  int64_t max_position = 0;
  bool tie_embeddings = false;
  bool qkv_bias = false;
  bool qk_norm = false;

  // Sparse feed-forward layers; experts 0: every layer is dense.
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  int64_t expert_intermediate_size = 0;
  int64_t shared_experts = 0;
  int64_t first_sparse_layer = 0;
  bool expert_bias = false;  // a correction of the routing scores (DeepSeek V3)

  // Latent attention; kv_lora_rank 0: ordinary heads.
  int64_t kv_lora_rank = 0;
  int64_t q_lora_rank = 0;
  int64_t nope_head_dim = 0;
  int64_t rope_head_dim = 0;
  int64_t v_head_dim = 0;

  void parameters(ParameterVisitor& p);

  [[nodiscard]] int64_t group() const { return q_heads / kv_heads; }
  [[nodiscard]] bool is_latent() const { return kv_lora_rank > 0; }

  /// All numbers of the checkpoint.
  [[nodiscard]] int64_t parameter_count() const;
  /// Numbers that a pass over `tokens` tokens reads: without the embedding table, of which it needs a row a token, and
  /// with the experts that it can be expected to meet when each token chooses its own independently and evenly.
  [[nodiscard]] double read_parameters(double tokens) const;
  /// Numbers that one token is multiplied with: twice as many operations.
  [[nodiscard]] double active_parameters() const;
  /// Numbers that the cache keeps for one token, all layers, keys and values (or the latent and its rotated key).
  [[nodiscard]] int64_t numbers_per_entry() const;
  /// Channels of all query heads that one token's attention multiplies with one entry, in all layers, both products.
  [[nodiscard]] int64_t attention_products_per_entry() const;
};

/// Reads configs/shapes/<name>.json. Throws UserError with every problem of the file at once.
[[nodiscard]] ModelShape read_shape(const std::filesystem::path& file);
[[nodiscard]] ModelShape parse_shape(const std::string& text, const std::string& name, const std::string& place);

}  // namespace kvarena::cost_model
