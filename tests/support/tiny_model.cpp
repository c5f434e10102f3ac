#include "tests/support/tiny_model.h"

#include "harness/core/random.h"

namespace kvarena::testing {

TensorShapes llama_tensors(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t q = config.q_heads * config.head_dim;
  const int64_t kv = config.kv_heads * config.head_dim;
  TensorShapes shapes = {{"model.embed_tokens.weight", {config.vocab_size, hidden}}, {"model.norm.weight", {hidden}}};
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string base = "model.layers." + std::to_string(layer) + ".";
    shapes.emplace_back(base + "input_layernorm.weight", std::vector{hidden});
    shapes.emplace_back(base + "post_attention_layernorm.weight", std::vector{hidden});
    shapes.emplace_back(base + "self_attn.q_proj.weight", std::vector{q, hidden});
    shapes.emplace_back(base + "self_attn.k_proj.weight", std::vector{kv, hidden});
    shapes.emplace_back(base + "self_attn.v_proj.weight", std::vector{kv, hidden});
    shapes.emplace_back(base + "self_attn.o_proj.weight", std::vector{hidden, q});
    shapes.emplace_back(base + "mlp.gate_proj.weight", std::vector{config.intermediate_size, hidden});
    shapes.emplace_back(base + "mlp.up_proj.weight", std::vector{config.intermediate_size, hidden});
    shapes.emplace_back(base + "mlp.down_proj.weight", std::vector{hidden, config.intermediate_size});
  }
  return shapes;
}

ModelConfig tiny_config() {
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

Transformer tiny_model(uint64_t seed, TransformerOptions options, const ModelConfig& config) {
  return {config, RandomCheckpoint(llama_tensors(config), seed), options};
}

std::vector<int32_t> tiny_prompt(int64_t n, uint64_t seed) {
  const RandomStream stream(seed, "prompt");
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) {
    tokens.push_back(i > 20 && i % 11 < 4 ? tokens[i - 17]
                                          : static_cast<int32_t>(stream.below(128, static_cast<uint64_t>(i))));
  }
  return tokens;
}

}  // namespace kvarena::testing
