#include "harness/model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/core/error.h"
#include "harness/model/architectures/architecture.h"
#include "harness/model/latent_rows.h"
#include "harness/model/split_checkpoint.h"
#include "harness/model/weight_loader.h"

namespace kvarena {
namespace {

std::vector<float> load_norm(WeightLoader& load, const ModelConfig& config, const std::string& name, int64_t size) {
  std::vector<float> weight = load.vector(name, size);
  if (config.norms_less_one) std::ranges::for_each(weight, [](float& x) { x += 1; });
  return weight;
}

/// New places of rows of queries and keys, in whose heads channels c and c + head_dim / 2 are to be rotated together.
/// Stored heads begin with their rotated channels, in pairs of neighbours or of c and c + rotary / 2. Scores do not
/// change, since queries and keys are reordered alike. Null: rows stay.
std::function<int64_t(int64_t row)> head_row_places(const ModelConfig& config) {
  const int64_t d = config.head_dim, rotary = config.rotary_dim();
  if (rotary == d && !config.rope_interleaved) return nullptr;
  return [=, neighbours = config.rope_interleaved](int64_t row) {
    const int64_t channel = row % d, begin = row - channel;
    if (channel < rotary) {
      const int64_t pair = neighbours ? channel / 2 : channel % (rotary / 2);
      const int64_t side = neighbours ? channel % 2 : channel / (rotary / 2);
      return begin + side * (d / 2) + pair;
    }
    const int64_t still = channel - rotary, half = (d - rotary) / 2;
    return begin + still / half * (d / 2) + rotary / 2 + still % half;
  };
}

/// Places of rows that hold, head by head, a query and the gate of what it attends to: all gates, then all queries.
std::function<int64_t(int64_t row)> gated_row_places(const ModelConfig& config,
                                                     std::function<int64_t(int64_t row)> place) {
  return [d = config.head_dim, heads = config.q_heads, place = std::move(place)](int64_t row) {
    const int64_t head = row / (2 * d), channel = row % (2 * d);
    if (channel >= d) return head * d + channel - d;
    const int64_t query = head * d + channel;
    return heads * d + (place ? place(query) : query);
  };
}

std::vector<float> placed(const std::vector<float>& rows, const std::function<int64_t(int64_t row)>& place) {
  std::vector<float> moved = rows;
  for (size_t row = 0; place && row < rows.size(); ++row) {
    moved[static_cast<size_t>(place(static_cast<int64_t>(row)))] = rows[row];
  }
  return moved;
}

/// Builds one layer's weights; names are `base` and what the architecture calls a part.
class LayerLoader {
 public:
  LayerLoader(WeightLoader& load, const ModelConfig& config, const TensorNames& names, int64_t layer)
      : load_(load), config_(config), names_(names), layer_(layer), base_(fmt::format("{}{}.", names.layer, layer)) {}

  [[nodiscard]] LayerWeights layer(bool sparse) {
    LayerWeights weights;
    if (config_.input_norms) weights.attention_norm = norm(names_.attention_norm, config_.hidden_size);
    if (config_.is_recurrent(layer_)) {
      weights.recurrent = delta_rule();
    } else if (config_.is_latent()) {
      weights.attention = latent_attention();
    } else {
      weights.attention = head_attention();
    }
    if (config_.output_norms) weights.attention_out_norm = norm(names_.attention_out_norm, config_.hidden_size);
    if (config_.input_norms) weights.mlp_norm = norm(names_.mlp_norm, config_.hidden_size);
    if (sparse) {
      weights.mlp = sparse_feed_forward();
    } else {
      weights.mlp = feed_forward(name(names_.mlp), config_.intermediate_size, config_.mlp_bias);
    }
    if (config_.output_norms) weights.mlp_out_norm = norm(names_.mlp_out_norm, config_.hidden_size);
    return weights;
  }

 private:
  [[nodiscard]] std::string name(std::string_view part) const { return base_ + std::string(part); }
  [[nodiscard]] std::vector<float> norm(std::string_view part, int64_t size) {
    return load_norm(load_, config_, name(part), size);
  }

  [[nodiscard]] Projection projection(const std::string& stem, int64_t n, int64_t k, bool bias) {
    return load_.stacked({{.name = stem, .rows = n}}, k, bias);
  }

  [[nodiscard]] HeadAttention head_attention() {
    const int64_t q = config_.q_heads * config_.head_dim;
    const int64_t kv = config_.kv_heads * config_.head_dim;
    const auto place = head_row_places(config_);
    HeadAttention attention;
    TensorRows queries{name(names_.q), q, place};
    if (config_.output_gate) queries = {name(names_.q), 2 * q, gated_row_places(config_, place)};
    attention.qkv = load_.stacked({queries, {name(names_.k), kv, place}, {name(names_.v), kv}}, config_.hidden_size,
                                  config_.qkv_bias);
    if (config_.qk_norm) {
      attention.q_norm = placed(norm(names_.q_norm, config_.qk_norm_whole ? q : config_.head_dim), place);
      attention.k_norm = placed(norm(names_.k_norm, config_.qk_norm_whole ? kv : config_.head_dim), place);
    } else if (config_.unit_qk_norm && config_.is_rotated(layer_)) {
      attention.q_norm = attention.k_norm = std::vector<float>(static_cast<size_t>(config_.head_dim), 1.0F);
    }
    if (config_.attention_sinks) attention.sinks = load_.vector(name(names_.sinks), config_.q_heads);
    // Caches scale scores by 1 / sqrt(head_dim).
    if (config_.query_scalar > 0) {
      attention.query_scale =
          static_cast<float>(std::sqrt(static_cast<double>(config_.head_dim) / config_.query_scalar));
    }
    attention.by_temperature = config_.temperature != 0 && !config_.is_rotated(layer_);
    attention.output = projection(name(names_.output), config_.hidden_size, q, config_.output_bias);
    return attention;
  }

  [[nodiscard]] DeltaRule delta_rule();
  [[nodiscard]] Projection delta_rows();
  [[nodiscard]] LatentAttention latent_attention();
  [[nodiscard]] Projection latent_projection(const std::string& stem, int64_t heads, int64_t plain, int64_t k,
                                             bool bias);

  [[nodiscard]] DenseFeedForward feed_forward(const std::string& stem, int64_t size, bool bias) {
    const std::string gate = stem + std::string(names_.gate);
    const std::string up = stem + std::string(names_.up);
    return {.gate_up = load_.stacked({{gate, size}, {up, size}}, config_.hidden_size, bias),
            .down = projection(stem + std::string(names_.down), config_.hidden_size, size, bias),
            .gelu = config_.gelu};
  }

  [[nodiscard]] SparseFeedForward sparse_feed_forward() {
    const ExpertConfig& expert = config_.expert;
    const std::string router = name(names_.router);
    SparseFeedForward sparse;
    sparse.router.parts.push_back(load_.matrix_f32(router + ".weight", expert.experts, config_.hidden_size));
    if (expert.biases) sparse.router.bias = load_.vector(router + ".bias", expert.experts);
    if (expert.correction) sparse.correction = load_.vector(router + ".e_score_correction_bias", expert.experts);
    for (int64_t i = 0; i < expert.experts; ++i) {
      sparse.experts.push_back(
          feed_forward(fmt::format("{}{}.", name(names_.experts), i), expert.intermediate_size, expert.biases));
      sparse.experts.back().limit = static_cast<float>(config_.gate_limit);
    }
    if (expert.shared_intermediate_size > 0) {
      sparse.shared = feed_forward(name(names_.shared), expert.shared_intermediate_size, false);
    }
    if (expert.shared_gate) sparse.shared_gate = projection(name(names_.shared_gate), 1, config_.hidden_size, false);
    return sparse;
  }

  WeightLoader& load_;
  const ModelConfig& config_;
  const TensorNames& names_;
  int64_t layer_;
  std::string base_;
};

/// Rows of queries, keys, values, decays, betas and gates, in this order, from files that have them otherwise.
Projection LayerLoader::delta_rows() {
  const DeltaRuleConfig& delta = config_.delta;
  const int64_t group = delta.v_heads / delta.k_heads, k = delta.k_dim, v = group * delta.v_dim;
  const int64_t channels = delta.channels(), gates = channels + 2 * delta.v_heads;
  std::vector<TensorRows> parts;
  const auto together = [&](std::string_view both, std::string_view one) {
    return !both.empty() && !load_.has(name(one) + ".weight");
  };
  if (together(names_.in_qkvz, names_.in_qkv)) {
    parts.push_back({name(names_.in_qkvz), channels + delta.values(), [=, keys = delta.keys()](int64_t row) {
                       const int64_t head = row / (2 * k + 2 * v), at = row % (2 * k + 2 * v);
                       if (at < k) return head * k + at;
                       if (at < 2 * k) return keys + head * k + at - k;
                       if (at < 2 * k + v) return 2 * keys + head * v + at - 2 * k;
                       return gates + head * v + at - 2 * k - v;
                     }});
  } else {
    parts.push_back({name(names_.in_qkv), channels});
    parts.push_back({name(names_.in_z), delta.values(), [=](int64_t row) { return row + gates - channels; }});
  }
  // The next part begins behind these, `passed` rows behind its place.
  const int64_t passed = delta.values();
  if (together(names_.in_ba, names_.in_b)) {
    parts.push_back({name(names_.in_ba), 2 * delta.v_heads, [=, heads = delta.v_heads](int64_t row) {
                       const int64_t head = row / (2 * group), at = row % (2 * group);
                       return (at < group ? heads + head * group + at : head * group + at - group) - passed;
                     }});
  } else {
    const auto place = [=](int64_t row) { return row - passed; };
    parts.push_back({name(names_.in_a), delta.v_heads, place});
    parts.push_back({name(names_.in_b), delta.v_heads, place});
  }
  return load_.stacked(parts, config_.hidden_size, /*bias=*/false);
}

DeltaRule LayerLoader::delta_rule() {
  const DeltaRuleConfig& delta = config_.delta;
  const int64_t channels = delta.channels();
  DeltaRule rule;
  rule.in = delta_rows();
  const std::vector<float> taps = load_.rows(name(names_.convolution), {channels, 1, delta.taps}, 0, channels);
  rule.convolution.resize(taps.size());
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t j = 0; j < delta.taps; ++j) rule.convolution[j * channels + c] = taps[c * delta.taps + j];
  }
  rule.decay = load_.vector(name(names_.decay), delta.v_heads);
  for (float& decay : rule.decay) decay = delta.negative_decay ? -decay : std::exp(decay);
  rule.decay_bias = load_.vector(name(names_.decay_bias), delta.v_heads);
  rule.norm = load_.vector(name(names_.delta_norm), delta.v_dim);
  rule.output = projection(name(names_.delta_output), config_.hidden_size, delta.values(), /*bias=*/false);
  return rule;
}

/// A projection to `heads` heads of plain + rotated channels.
Projection LayerLoader::latent_projection(const std::string& stem, int64_t heads, int64_t plain, int64_t k, bool bias) {
  const int64_t rows = heads * (plain + config_.latent.rope_head_dim);
  return load_.stacked({{.name = stem, .rows = rows, .place = latent_row_places(config_, plain)}}, k, bias);
}

LatentAttention LayerLoader::latent_attention() {
  const LatentAttentionConfig& latent = config_.latent;
  const int64_t hidden = config_.hidden_size;
  LatentAttention attention;
  if (latent.q_lora_rank > 0) {
    attention.q_down = projection(name(names_.q_down), latent.q_lora_rank, hidden, config_.qkv_bias);
    attention.q_norm = load_.vector(name(names_.q_down_norm), latent.q_lora_rank);
    attention.q =
        latent_projection(name(names_.q_up), config_.q_heads, latent.nope_head_dim, latent.q_lora_rank, /*bias=*/false);
  } else {
    attention.q = latent_projection(name(names_.q), config_.q_heads, latent.nope_head_dim, hidden, /*bias=*/false);
  }
  attention.latent = latent_projection(name(names_.latent), 1, latent.kv_lora_rank, hidden, config_.qkv_bias);
  attention.latent_norm = load_.vector(name(names_.latent_norm), latent.kv_lora_rank);
  LatentExpansion expansion(load_, config_, name(names_.expansion));
  const int64_t width = latent.width(), heads = config_.q_heads;
  const kernels::DType dtype = expansion.dtype();
  attention.to_latent = load_.of_heads(heads, width, latent.nope_head_dim, dtype,
                                       [&](int64_t head) { return expansion.to_latent(head); });
  attention.to_value =
      load_.of_heads(heads, latent.v_head_dim, width, dtype, [&](int64_t head) { return expansion.to_value(head); });
  attention.output = projection(name(names_.output), hidden, config_.q_heads * latent.v_head_dim, config_.output_bias);
  return attention;
}

}  // namespace

int64_t Projection::out() const {
  int64_t rows = 0;
  for (const kernels::PackedMatrix& part : parts) rows += part.n();
  return rows;
}

ModelWeights load_weights(const ModelConfig& config, const Checkpoint& checkpoint, std::optional<kernels::DType> dtype,
                          kernels::Arithmetic arithmetic) {
  if (!dtype && !config.recurrent_layers.empty()) {  // their rows change places across tensors
    fail({.place = checkpoint.path().string(),
          .found = "recurrent layers, and a dtype \"as stored\"",
          .expected = "f32, f16 or bf16 for such a model"});
  }
  const TensorNames& names = architecture_of(config).tensors;
  const SplitCheckpoint split(checkpoint, config);
  WeightLoader load(split, dtype, arithmetic);
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
  weights.final_norm = load_norm(load, config, std::string(names.final_norm), config.hidden_size);
  if (!config.tie_embeddings) weights.lm_head = vocabulary(names.head);
  weights.matrix_bytes = load.bytes();
  weights.matrix_numbers = load.numbers();
  return weights;
}

}  // namespace kvarena
