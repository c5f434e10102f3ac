#pragma once
// A small random decoder held in memory, for tests of everything above the kernels.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "harness/core/random.h"
#include "harness/model/checkpoint.h"
#include "harness/model/config.h"
#include "harness/model/transformer.h"

namespace kvarena::testing {

/// Tensors made from a seed: the same name gives the same values in every test.
class RandomCheckpoint final : public Checkpoint {
 public:
  RandomCheckpoint(const ModelConfig& config, uint64_t seed) : seed_(seed) {
    const int64_t hidden = config.hidden_size;
    const int64_t q = config.q_heads * config.head_dim;
    const int64_t kv = config.kv_heads * config.head_dim;
    add("model.embed_tokens.weight", {config.vocab_size, hidden});
    add("model.norm.weight", {hidden});
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      const std::string base = "model.layers." + std::to_string(layer) + ".";
      add(base + "input_layernorm.weight", {hidden});
      add(base + "post_attention_layernorm.weight", {hidden});
      add(base + "self_attn.q_proj.weight", {q, hidden});
      add(base + "self_attn.k_proj.weight", {kv, hidden});
      add(base + "self_attn.v_proj.weight", {kv, hidden});
      add(base + "self_attn.o_proj.weight", {hidden, q});
      add(base + "mlp.gate_proj.weight", {config.intermediate_size, hidden});
      add(base + "mlp.up_proj.weight", {config.intermediate_size, hidden});
      add(base + "mlp.down_proj.weight", {hidden, config.intermediate_size});
    }
    std::ranges::sort(tensors_, {}, &TensorInfo::name);
  }

  [[nodiscard]] const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  [[nodiscard]] const std::filesystem::path& path() const override { return path_; }
  [[nodiscard]] std::vector<std::filesystem::path> files() const override { return {}; }
  [[nodiscard]] std::span<const std::byte> raw(std::string_view) const override { return {}; }

 private:
  void add(const std::string& name, std::vector<int64_t> shape) {
    tensors_.push_back({.name = name, .shape = std::move(shape), .type = TensorType::f32, .stored_type = "F32"});
  }
  void convert_rows(size_t index, int64_t first, int64_t count, float* out) const override {
    const TensorInfo& info = tensors_[index];
    const RandomStream stream(seed_, info.name);
    const bool norm = info.shape.size() == 1;
    // Queries and keys larger than usual, so that attention is far from uniform.
    const bool sharp = info.name.find("q_proj") != std::string::npos || info.name.find("k_proj") != std::string::npos;
    const int64_t columns = info.columns();
    const double scale = (sharp ? 6.0 : 2.0) / std::sqrt(static_cast<double>(columns));
    for (int64_t i = 0; i < count * columns; ++i) {
      const double u = stream.uniform(static_cast<uint64_t>(first * columns + i));
      out[i] = static_cast<float>(norm ? 0.8 + 0.4 * u : scale * (2 * u - 1));
    }
  }

  uint64_t seed_;
  std::vector<TensorInfo> tensors_;
  std::filesystem::path path_ = "random checkpoint";
};

/// Two kv heads for four query heads, three layers.
inline ModelConfig tiny_config() {
  ModelConfig config;
  config.architecture = "llama";
  config.name = "tiny";
  config.layers = 3;
  config.hidden_size = 64;
  config.q_heads = 4;
  config.kv_heads = 2;
  config.head_dim = 32;
  config.intermediate_size = 96;
  config.vocab_size = 128;
  config.max_position = 2048;
  config.rms_norm_eps = 1e-5;
  config.tie_embeddings = true;
  return config;
}

inline Transformer tiny_model(uint64_t seed = 1, TransformerOptions options = {}) {
  const ModelConfig config = tiny_config();
  return {config, RandomCheckpoint(config, seed), options};
}

/// A prompt of `n` tokens that repeats itself here and there.
inline std::vector<int32_t> tiny_prompt(int64_t n, uint64_t seed = 7) {
  const RandomStream stream(seed, "prompt");
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) {
    tokens.push_back(i > 20 && i % 11 < 4 ? tokens[i - 17]
                                          : static_cast<int32_t>(stream.below(128, static_cast<uint64_t>(i))));
  }
  return tokens;
}

}  // namespace kvarena::testing
