#include "harness/device/device_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <span>

#include "harness/core/error.h"
#include "harness/device/weight_source.h"
#include "harness/model/architectures/architecture.h"
#include "harness/model/latent_rows.h"
#include "harness/model/pass_checks.h"
#include "harness/model/weight_loader.h"

namespace kvarena::device {
namespace {

using kernels::DeviceMatrix;

/// Makes weights of what a source gives.
class Uploader {
 public:
  Uploader(const ModelConfig& config, WeightSource& source, kernels::DType dtype, std::span<const int64_t> devices)
      : config_(config), names_(architecture_of(config).tensors), source_(source), dtype_(dtype), devices_(devices) {}

  [[nodiscard]] DeviceWeights weights() {
    DeviceWeights all;
    const TensorRows embedding{.name = std::string(names_.embedding), .rows = config_.vocab_size};
    for (int64_t layer = 0; layer < config_.layers; ++layer) {
      const int64_t device = devices_[static_cast<size_t>(layer)];
      const kernels::CudaDeviceScope here(device);
      if (layer > 0 && devices_[static_cast<size_t>(layer - 1)] != device) staged_ = {};  // on the device before
      if (layer == 0) all.embedding = matrix(embedding, config_.hidden_size, dtype_);
      const std::string base = fmt::format("{}{}.", names_.layer, layer);
      all.layers.push_back(layer_weights(base, config_.is_sparse_layer(layer)));
      source_.layer_done(base);
    }
    const kernels::CudaDeviceScope here(devices_.back());
    all.final_norm = vector(std::string(names_.final_norm), config_.hidden_size);
    if (!config_.tie_embeddings || devices_.front() != devices_.back()) {
      const std::string name(config_.tie_embeddings ? names_.embedding : names_.head);
      all.lm_head = stacked({{name, config_.vocab_size}}, config_.hidden_size, /*bias=*/false);
    }
    all.matrix_bytes = matrix_bytes_;
    return all;
  }

 private:
  [[nodiscard]] DeviceLayerWeights layer_weights(const std::string& base, bool sparse) {
    const auto name = [&](std::string_view part) { return base + std::string(part); };
    DeviceLayerWeights layer;
    layer.attention_norm = vector(name(names_.attention_norm), config_.hidden_size);
    if (config_.is_latent()) {
      layer.attention = latent_weights(base);
    } else {
      layer.attention = head_weights(base);
    }
    layer.mlp_norm = vector(name(names_.mlp_norm), config_.hidden_size);
    if (sparse) {
      layer.mlp = sparse_weights(base);
    } else {
      layer.mlp = dense_weights(name(names_.mlp), config_.intermediate_size, config_.mlp_bias);
    }
    return layer;
  }

  [[nodiscard]] DeviceHeadAttention head_weights(const std::string& base) {
    const auto name = [&](std::string_view part) { return base + std::string(part); };
    const int64_t q = config_.q_heads * config_.head_dim, kv = config_.kv_heads * config_.head_dim;
    const int64_t hidden = config_.hidden_size;
    DeviceHeadAttention attention;
    attention.qkv =
        stacked({{name(names_.q), q}, {name(names_.k), kv}, {name(names_.v), kv}}, hidden, config_.qkv_bias);
    if (config_.qk_norm) {
      attention.q_norm = vector(name(names_.q_norm), config_.head_dim);
      attention.k_norm = vector(name(names_.k_norm), config_.head_dim);
    }
    attention.output = stacked({{name(names_.output), hidden}}, q, config_.output_bias);
    return attention;
  }

  [[nodiscard]] DeviceLatentAttention latent_weights(const std::string& base) {
    const LatentAttentionConfig& latent = config_.latent;
    const int64_t hidden = config_.hidden_size, rank = latent.q_lora_rank;
    const auto name = [&](std::string_view part) { return base + std::string(part); };
    const auto heads = [&](const std::string& stem, int64_t count, int64_t plain) {
      return TensorRows{stem, count * (plain + latent.rope_head_dim), latent_row_places(config_, plain)};
    };
    DeviceLatentAttention attention;
    if (rank > 0) {
      attention.q_down = stacked({{name(names_.q_down), rank}}, hidden, config_.qkv_bias);
      attention.q_norm = vector(name(names_.q_down_norm), rank);
    }
    const std::string q = name(rank > 0 ? names_.q_up : names_.q);
    attention.q = stacked({heads(q, config_.q_heads, latent.nope_head_dim)}, rank > 0 ? rank : hidden, /*bias=*/false);
    attention.latent = stacked({heads(name(names_.latent), 1, latent.kv_lora_rank)}, hidden, config_.qkv_bias);
    attention.latent_norm = vector(name(names_.latent_norm), latent.kv_lora_rank);
    source_.read_expansion(name(names_.expansion), [&](auto to_latent, auto to_value) {
      attention.to_latent.push_back(head_matrix(to_latent, latent.nope_head_dim));
      attention.to_value.push_back(head_matrix(to_value, latent.width()));
    });
    attention.output =
        stacked({{name(names_.output), hidden}}, config_.q_heads * latent.v_head_dim, config_.output_bias);
    return attention;
  }

  [[nodiscard]] DeviceDense dense_weights(const std::string& stem, int64_t size, bool bias) {
    const std::string gate = stem + std::string(names_.gate), up = stem + std::string(names_.up);
    return {.gate_up = stacked({{gate, size}, {up, size}}, config_.hidden_size, bias),
            .down = stacked({{stem + std::string(names_.down), config_.hidden_size}}, size, bias)};
  }

  [[nodiscard]] DeviceSparse sparse_weights(const std::string& base) {
    const ExpertConfig& expert = config_.expert;
    const std::string router = base + std::string(names_.router);
    DeviceSparse sparse{.router = matrix({router, expert.experts}, config_.hidden_size, kernels::DType::f32)};
    if (expert.correction) {
      sparse.correction = source_.vector(router + ".e_score_correction_bias", expert.experts);
    }
    for (int64_t i = 0; i < expert.experts; ++i) {
      sparse.experts.push_back(
          dense_weights(fmt::format("{}{}{}.", base, names_.experts, i), expert.intermediate_size, /*bias=*/false));
    }
    if (expert.shared_intermediate_size > 0) {
      sparse.shared = dense_weights(base + std::string(names_.shared), expert.shared_intermediate_size, /*bias=*/false);
    }
    return sparse;
  }

  [[nodiscard]] DeviceVector vector(const std::string& name, int64_t size) {
    return DeviceVector(source_.vector(name, size));
  }

  [[nodiscard]] DeviceMatrix matrix(const TensorRows& part, int64_t k, kernels::DType dtype) {
    DeviceMatrix made = make(part.rows, k, dtype);
    fill(made, 0, part);
    return made;
  }

  /// Tensors under each other, with their biases or without.
  [[nodiscard]] DeviceProjection stacked(const std::vector<TensorRows>& parts, int64_t k, bool bias) {
    int64_t total = 0;
    for (const TensorRows& part : parts) total += part.rows;
    DeviceProjection made{.matrix = make(total, k, dtype_), .bias = {}};
    std::vector<float> biases;
    for (int64_t begin = 0; const TensorRows& part : parts) {
      fill(made.matrix, begin, part);
      begin += part.rows;
      if (!bias) continue;
      const std::vector<float> placed = placed_bias(part);
      biases.insert(biases.end(), placed.begin(), placed.end());
    }
    if (bias) made.bias = DeviceVector(biases);
    return made;
  }

  /// Reads `part` to rows begin .. of the matrix.
  void fill(DeviceMatrix& to, int64_t begin, const TensorRows& part) {
    const int64_t k = to.k();
    std::vector<float> placed(part.place ? static_cast<size_t>(part.rows * k) : 0);
    source_.read_blocks(part.name + ".weight", part.rows, k, [&](int64_t first, int64_t count, const float* rows) {
      if (!part.place) return store_rows(to, begin + first, count, rows);
      for (int64_t i = 0; i < count; ++i) std::copy_n(rows + i * k, k, placed.data() + part.place(first + i) * k);
    });
    if (part.place) store_rows(to, begin, part.rows, placed.data());
  }

  [[nodiscard]] std::vector<float> placed_bias(const TensorRows& part) {
    std::vector<float> stored = source_.vector(part.name + ".bias", part.rows);
    if (!part.place) return stored;
    std::vector<float> placed(stored.size());
    for (int64_t row = 0; row < part.rows; ++row) placed[part.place(row)] = stored[row];
    return placed;
  }

  /// A matrix of a head, [rows.size() / k, k].
  [[nodiscard]] DeviceMatrix head_matrix(std::span<const float> rows, int64_t k) {
    const int64_t n = std::ssize(rows) / k;
    DeviceMatrix made = make(n, k, dtype_);
    store_rows(made, 0, n, rows.data());
    return made;
  }

  [[nodiscard]] DeviceMatrix make(int64_t n, int64_t k, kernels::DType dtype) {
    DeviceMatrix made(n, k, dtype);
    matrix_bytes_ += made.bytes();
    staged_.reserve(kStagedRows * k * 4);
    return made;
  }

  /// Rows begin .. begin+count-1, by way of staged_.
  void store_rows(DeviceMatrix& to, int64_t begin, int64_t count, const float* rows) {
    auto* staged = static_cast<float*>(staged_.data());
    for (int64_t first = 0; first < count; first += kStagedRows) {
      const int64_t some = std::min(kStagedRows, count - first);
      kernels::cuda_upload(staged, rows + first * to.k(), some * to.k() * 4, nullptr);
      to.store_rows(begin + first, some, staged, to.k(), nullptr);
      kernels::cuda_synchronize(nullptr);
    }
  }

  const ModelConfig& config_;
  const TensorNames& names_;
  WeightSource& source_;
  kernels::DType dtype_;
  std::span<const int64_t> devices_;  // [layers]
  kernels::CudaBuffer staged_;        // [kStagedRows, k] of float32, on the device of the layer under way
  int64_t matrix_bytes_ = 0;
};

}  // namespace

DeviceVector::DeviceVector(const std::vector<float>& host) : data_(static_cast<int64_t>(host.size()) * 4) {
  kernels::cuda_upload(data_.data(), host.data(), data_.bytes(), nullptr);
  kernels::cuda_synchronize(nullptr);
}

namespace {

/// Throws UserError when the device's pass lacks something of the config.
void check_family(const ModelConfig& config) {
  check_entries(config);
  const std::pair<bool, std::string_view> host_only[] = {
      {config.attention_sinks, "attention sinks"},
      {config.output_norms || !config.input_norms, "norms behind each block"},
      {config.embedding_scale != 1 || config.residual_scale != 1 || config.logit_scale != 1 || config.query_scalar > 0,
       "scaled embeddings, residuals, scores or logits"},
      {config.logit_cap > 0, "capped logits"},
      {config.gelu || config.gate_limit > 0, "gates other than SiLU"},
      {config.two_rotations(), "two rotations"},
      {config.rotary_dim() != config.turned_dim() || (config.rope_interleaved && !config.is_latent()),
       "rotation of a part of each head or of neighbours"},
      {config.rope_scaling.type == RopeScaling::Type::longrope, "rotation by long factors"},
      {config.qk_norm_whole || config.unit_qk_norm, "norms of all heads together or without weights"},
      {config.chunked_window, "chunks that attention stays in"},
      {!config.recurrent_layers.empty() || config.output_gate || config.expert.shared_gate,
       "recurrent layers or gates of what attention and shared experts give"},
      {config.expert.biases || config.expert.weighted_inputs, "experts with biases or weighted inputs"}};
  const auto* const lacking = std::ranges::find_if(host_only, [](const auto& feature) { return feature.first; });
  if (lacking == std::end(host_only)) return;
  fail({.place = fmt::format("{} on the device", config.name),
        .found = fmt::format("a {} with {}, which only the host computes", config.architecture, lacking->second),
        .expected = "a model of another family, or no device"});
}

}  // namespace

DeviceWeights load_device_weights(const ModelConfig& config, const Checkpoint& checkpoint, kernels::DType dtype,
                                  std::span<const int64_t> devices) {
  check_family(config);
  return Uploader(config, *checkpoint_source(config, checkpoint, dtype), dtype, devices).weights();
}

DeviceWeights random_device_weights(const ModelConfig& config, kernels::DType dtype, uint64_t seed,
                                    std::span<const int64_t> devices) {
  check_family(config);
  return Uploader(config, *random_source(config, seed), dtype, devices).weights();
}

}  // namespace kvarena::device
