#include "harness/model/weights.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena {
namespace {

using kernels::DType;
using kernels::PackedMatrix;

/// Reads tensors of one checkpoint, checking each against the shape that the config implies.
class Loader {
 public:
  Loader(const Checkpoint& checkpoint, DType dtype) : checkpoint_(checkpoint), dtype_(dtype) {}

  void expect(const std::string& name, const std::vector<int64_t>& shape) const {
    const TensorInfo& info = checkpoint_.at(name);
    if (info.shape == shape) return;
    fail({.place = fmt::format("{}: tensor {}", checkpoint_.path().string(), name),
          .found = fmt::format("shape [{}]", fmt::join(info.shape, ", ")),
          .expected = fmt::format("[{}] from the model's config", fmt::join(shape, ", "))});
  }

  [[nodiscard]] std::vector<float> vector(const std::string& name, int64_t size) const {
    expect(name, {size});
    std::vector<float> values(static_cast<size_t>(size));
    checkpoint_.read_f32(name, values);
    return values;
  }

  /// A tensor that a family may leave out.
  [[nodiscard]] std::vector<float> optional_vector(const std::string& name, int64_t size) const {
    return checkpoint_.find(name) == nullptr ? std::vector<float>{} : vector(name, size);
  }

  /// Packs `names` under each other: each [rows[i], k].
  [[nodiscard]] PackedMatrix stacked(const std::vector<std::string>& names, const std::vector<int64_t>& rows,
                                     int64_t k) const {
    int64_t total = 0;
    for (const int64_t n : rows) total += n;
    PackedMatrix packed(total, k, dtype_);
    int64_t begin = 0;
    for (size_t i = 0; i < names.size(); ++i) {
      expect(names[i], {rows[i], k});
      pack(packed, begin, names[i], rows[i], k);
      begin += rows[i];
    }
    return packed;
  }

  [[nodiscard]] PackedMatrix matrix(const std::string& name, int64_t n, int64_t k) const {
    return stacked({name}, {n}, k);
  }

 private:
  void pack(PackedMatrix& packed, int64_t begin, const std::string& name, int64_t rows, int64_t k) const {
    constexpr int64_t kBlock = 512;  // rows held as float32 at a time
    std::vector<float> block(static_cast<size_t>(std::min(rows, kBlock) * k));
    for (int64_t first = 0; first < rows; first += kBlock) {
      const int64_t count = std::min(kBlock, rows - first);
      checkpoint_.read_rows_f32(name, first, count, std::span(block).first(static_cast<size_t>(count * k)));
      packed.pack_rows(begin + first, count, block.data(), k);
    }
  }

  const Checkpoint& checkpoint_;
  DType dtype_;
};

/// q, k and v biases as one vector, or nothing when the family has none.
std::vector<float> qkv_bias(const Loader& load, const std::string& attention, int64_t q, int64_t kv) {
  std::vector<float> all = load.optional_vector(attention + "q_proj.bias", q);
  if (all.empty()) return all;
  for (const char* part : {"k_proj.bias", "v_proj.bias"}) {
    const std::vector<float> bias = load.vector(attention + part, kv);
    all.insert(all.end(), bias.begin(), bias.end());
  }
  return all;
}

LayerWeights load_layer(const Loader& load, const ModelConfig& config, int64_t layer) {
  const std::string base = fmt::format("model.layers.{}.", layer);
  const std::string attention = base + "self_attn.";
  const std::string mlp = base + "mlp.";
  const int64_t hidden = config.hidden_size;
  const int64_t q = config.q_heads * config.head_dim;
  const int64_t kv = config.kv_heads * config.head_dim;
  const int64_t inner = config.intermediate_size;
  return {.attention_norm = load.vector(base + "input_layernorm.weight", hidden),
          .qkv = load.stacked({attention + "q_proj.weight", attention + "k_proj.weight", attention + "v_proj.weight"},
                              {q, kv, kv}, hidden),
          .qkv_bias = qkv_bias(load, attention, q, kv),
          .q_norm = load.optional_vector(attention + "q_norm.weight", config.head_dim),
          .k_norm = load.optional_vector(attention + "k_norm.weight", config.head_dim),
          .output = load.matrix(attention + "o_proj.weight", hidden, q),
          .mlp_norm = load.vector(base + "post_attention_layernorm.weight", hidden),
          .gate_up = load.stacked({mlp + "gate_proj.weight", mlp + "up_proj.weight"}, {inner, inner}, hidden),
          .down = load.matrix(mlp + "down_proj.weight", hidden, inner)};
}

}  // namespace

int64_t ModelWeights::bytes() const {
  int64_t total = embedding.bytes() + lm_head.bytes();
  for (const LayerWeights& layer : layers) {
    total += layer.qkv.bytes() + layer.output.bytes() + layer.gate_up.bytes() + layer.down.bytes();
  }
  return total;
}

ModelWeights load_weights(const ModelConfig& config, const Checkpoint& checkpoint, DType dtype) {
  const Loader load(checkpoint, dtype);
  ModelWeights weights;
  weights.embedding = load.matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size);
  for (int64_t layer = 0; layer < config.layers; ++layer) weights.layers.push_back(load_layer(load, config, layer));
  weights.final_norm = load.vector("model.norm.weight", config.hidden_size);
  if (!config.tie_embeddings) {
    weights.lm_head = load.matrix("lm_head.weight", config.vocab_size, config.hidden_size);
  }
  return weights;
}

}  // namespace kvarena
