#include "harness/model/weights.h"

#include <fmt/format.h>

#include "harness/model/architectures/architecture.h"
#include "harness/model/weight_loader.h"

namespace kvarena {
namespace {

/// A head's matrix [n, rank] from latent to keys or values, over the channels of a cached entry: [n, width].
std::vector<float> over_entries(const LatentAttentionConfig& latent, const std::vector<float>& rows) {
  const int64_t rank = latent.kv_lora_rank;
  const int64_t n = static_cast<int64_t>(rows.size()) / rank;
  std::vector<float> spread(static_cast<size_t>(n * latent.width()), 0.0F);
  for (int64_t i = 0; i < n * rank; ++i) spread[i / rank * latent.width() + latent.latent_channel(i % rank)] = rows[i];
  return spread;
}

/// [n, k] as [k, n].
std::vector<float> transposed(const std::vector<float>& rows, int64_t k) {
  const int64_t n = static_cast<int64_t>(rows.size()) / k;
  std::vector<float> turned(rows.size());
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < k; ++j) turned[j * n + i] = rows[i * k + j];
  }
  return turned;
}

/// Builds one layer's weights; names are `base` and what the architecture calls a part.
class LayerLoader {
 public:
  LayerLoader(WeightLoader& load, const ModelConfig& config, const TensorNames& names, int64_t layer)
      : load_(load), config_(config), names_(names), base_(fmt::format("{}{}.", names.layer, layer)) {}

  [[nodiscard]] LayerWeights layer(bool sparse) {
    LayerWeights weights;
    weights.attention_norm = load_.vector(name(names_.attention_norm), config_.hidden_size);
    if (config_.is_latent()) {
      weights.attention = latent_attention();
    } else {
      weights.attention = head_attention();
    }
    weights.mlp_norm = load_.vector(name(names_.mlp_norm), config_.hidden_size);
    if (sparse) {
      weights.mlp = sparse_feed_forward();
    } else {
      weights.mlp = feed_forward(name(names_.mlp), config_.intermediate_size, config_.mlp_bias);
    }
    return weights;
  }

 private:
  [[nodiscard]] std::string name(std::string_view part) const { return base_ + std::string(part); }

  [[nodiscard]] Projection projection(const std::string& stem, int64_t n, int64_t k, bool bias) {
    return load_.stacked({{.name = stem, .rows = n}}, k, bias);
  }

  [[nodiscard]] HeadAttention head_attention() {
    const int64_t q = config_.q_heads * config_.head_dim;
    const int64_t kv = config_.kv_heads * config_.head_dim;
    HeadAttention attention;
    attention.qkv = load_.stacked({{name(names_.q), q}, {name(names_.k), kv}, {name(names_.v), kv}},
                                  config_.hidden_size, config_.qkv_bias);
    if (config_.qk_norm) {
      attention.q_norm = load_.vector(name(names_.q_norm), config_.head_dim);
      attention.k_norm = load_.vector(name(names_.k_norm), config_.head_dim);
    }
    attention.output = projection(name(names_.output), config_.hidden_size, q, config_.output_bias);
    return attention;
  }

  [[nodiscard]] LatentAttention latent_attention();
  [[nodiscard]] Projection latent_projection(const std::string& stem, int64_t heads, int64_t plain, int64_t k,
                                             bool bias);
  void load_expansion(LatentAttention& attention);

  [[nodiscard]] DenseFeedForward feed_forward(const std::string& stem, int64_t size, bool bias) {
    const std::string gate = stem + std::string(names_.gate);
    const std::string up = stem + std::string(names_.up);
    return {.gate_up = load_.side_by_side({{gate, size}, {up, size}}, config_.hidden_size, bias),
            .down = projection(stem + std::string(names_.down), config_.hidden_size, size, bias)};
  }

  [[nodiscard]] SparseFeedForward sparse_feed_forward() {
    const ExpertConfig& expert = config_.expert;
    const std::string router = name(names_.router);
    SparseFeedForward sparse{.router = load_.driver_matrix(router + ".weight", expert.experts, config_.hidden_size)};
    if (expert.sigmoid_scores) sparse.correction = load_.vector(router + ".e_score_correction_bias", expert.experts);
    for (int64_t i = 0; i < expert.experts; ++i) {
      sparse.experts.push_back(
          feed_forward(fmt::format("{}{}.", name(names_.experts), i), expert.intermediate_size, false));
    }
    if (expert.shared_intermediate_size > 0) {
      sparse.shared = feed_forward(name(names_.shared), expert.shared_intermediate_size, false);
    }
    return sparse;
  }

  WeightLoader& load_;
  const ModelConfig& config_;
  const TensorNames& names_;
  std::string base_;
};

/// A projection to `heads` heads of plain + rotated channels. Where rotation pairs are neighbours, rows of the rotated
/// part are put in half-split order: channel 2 j + s goes to s * rope / 2 + j. Scores do not change, since queries and
/// keys are reordered alike.
Projection LayerLoader::latent_projection(const std::string& stem, int64_t heads, int64_t plain, int64_t k, bool bias) {
  const int64_t rope = config_.latent.rope_head_dim;
  const int64_t width = plain + rope;
  const auto place = [=](int64_t row) {
    const int64_t channel = row % width - plain;
    return channel < 0 ? row : row - channel + channel % 2 * (rope / 2) + channel / 2;
  };
  TensorRows rows{.name = stem, .rows = heads * width};
  if (config_.rope_interleaved) rows.place = place;
  return load_.stacked({rows}, k, bias);
}

LatentAttention LayerLoader::latent_attention() {
  const LatentAttentionConfig& latent = config_.latent;
  const int64_t hidden = config_.hidden_size;
  LatentAttention attention;
  if (latent.q_lora_rank > 0) {
    attention.q_down = projection(name("self_attn.q_a_proj"), latent.q_lora_rank, hidden, config_.qkv_bias);
    attention.q_norm = load_.vector(name("self_attn.q_a_layernorm.weight"), latent.q_lora_rank);
    attention.q = latent_projection(name("self_attn.q_b_proj"), config_.q_heads, latent.nope_head_dim,
                                    latent.q_lora_rank, /*bias=*/false);
  } else {
    attention.q = latent_projection(name(names_.q), config_.q_heads, latent.nope_head_dim, hidden, /*bias=*/false);
  }
  attention.latent =
      latent_projection(name("self_attn.kv_a_proj_with_mqa"), 1, latent.kv_lora_rank, hidden, config_.qkv_bias);
  attention.latent_norm = load_.vector(name("self_attn.kv_a_layernorm.weight"), latent.kv_lora_rank);
  load_expansion(attention);
  attention.output = projection(name(names_.output), hidden, config_.q_heads * latent.v_head_dim, config_.output_bias);
  return attention;
}

/// The matrices between latent and heads: one tensor of both, [q_heads * (nope + value), rank], or, in newer GGUF
/// files, k_b [q_heads, rank, nope] and v_b [q_heads, value, rank]. Some files have all three.
void LayerLoader::load_expansion(LatentAttention& attention) {
  const int64_t rank = config_.latent.kv_lora_rank;
  const int64_t nope = config_.latent.nope_head_dim;
  const int64_t v_dim = config_.latent.v_head_dim;
  const int64_t heads = config_.q_heads;
  const std::string both = name("self_attn.kv_b_proj.weight");
  const std::string keys = name("self_attn.k_b_proj.weight");
  const std::string values = name("self_attn.v_b_proj.weight");
  const int64_t width = config_.latent.width();
  const bool split = load_.has(keys) && load_.has(values);
  if (split) load_.skip(both);
  const std::vector<int64_t> stacked_shape = {heads * (nope + v_dim), rank};
  const auto key = [&](int64_t head, int64_t count) {  // [nope, rank]
    return split ? transposed(load_.rows(keys, {heads, rank, nope}, head, count), nope)
                 : load_.rows(both, stacked_shape, head * (nope + v_dim), count * nope);
  };
  const auto value = [&](int64_t head, int64_t count) {  // [v_head_dim, rank]
    return split ? load_.rows(values, {heads, v_dim, rank}, head, count)
                 : load_.rows(both, stacked_shape, head * (nope + v_dim) + nope, count * v_dim);
  };
  (void)key(0, 0);  // shapes are checked even by a share without heads
  (void)value(0, 0);
  attention.to_latent = load_.of_heads(
      heads, width, nope, [&](int64_t head) { return transposed(over_entries(config_.latent, key(head, 1)), width); });
  attention.to_value =
      load_.of_heads(heads, v_dim, width, [&](int64_t head) { return over_entries(config_.latent, value(head, 1)); });
}

}  // namespace

ModelWeights load_weights(const ModelConfig& config, const Checkpoint& checkpoint, kernels::DType dtype,
                          const Share& share) {
  const TensorNames& names = architecture_of(config).tensors;
  WeightLoader load(checkpoint, dtype, share);
  const auto vocabulary = [&](std::string_view name) {
    return load.stacked({{.name = std::string(name), .rows = config.vocab_size}}, config.hidden_size, /*bias=*/false);
  };
  ModelWeights weights;
  weights.embedding = vocabulary(names.embedding);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    LayerLoader loader(load, config, names, layer);
    weights.layers.push_back(loader.layer(config.is_sparse_layer(layer)));
    load.expect_all_read(fmt::format("{}{}.", names.layer, layer), config.architecture);
  }
  weights.final_norm = load.vector(std::string(names.final_norm), config.hidden_size);
  if (!config.tie_embeddings) weights.lm_head = vocabulary(names.head);
  weights.matrix_bytes = load.whole_bytes();
  weights.held_bytes = load.held_bytes();
  return weights;
}

}  // namespace kvarena
