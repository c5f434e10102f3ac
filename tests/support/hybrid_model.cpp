#include "tests/support/hybrid_model.h"

namespace kvarena::testing {

ModelConfig hybrid_config() {
  ModelConfig config = tiny_config();
  config.architecture = "qwen3_5_text";
  config.layers = 2 * tiny_config().layers;
  for (int64_t layer = 0; layer < config.layers; ++layer) config.recurrent_layers.push_back(layer % 2 == 0);
  config.delta = {.k_heads = 2, .v_heads = 4, .k_dim = 16, .v_dim = 24, .taps = 4};
  config.rotated_channels = 8;
  config.qk_norm = true;
  config.norms_less_one = true;
  config.output_gate = true;
  return config;
}

TensorShapes hybrid_tensors(const ModelConfig& config) {
  const std::string model = "model.language_model.";
  const int64_t hidden = config.hidden_size, size = config.intermediate_size, values = config.delta.values();
  const int64_t q = config.q_heads * config.head_dim, kv = config.kv_heads * config.head_dim;
  TensorShapes shapes = {{model + "embed_tokens.weight", {config.vocab_size, hidden}},
                         {model + "norm.weight", {hidden}}};
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const auto add = [&, base = model + "layers." + std::to_string(layer) + "."](const std::string& part,
                                                                                 std::vector<int64_t> shape) {
      shapes.emplace_back(base + part, std::move(shape));
    };
    add("input_layernorm.weight", {hidden});
    add("post_attention_layernorm.weight", {hidden});
    add("mlp.gate_proj.weight", {size, hidden});
    add("mlp.up_proj.weight", {size, hidden});
    add("mlp.down_proj.weight", {hidden, size});
    if (!config.is_recurrent(layer)) {
      add("self_attn.q_proj.weight", {2 * q, hidden});
      add("self_attn.k_proj.weight", {kv, hidden});
      add("self_attn.v_proj.weight", {kv, hidden});
      add("self_attn.o_proj.weight", {hidden, q});
      add("self_attn.q_norm.weight", {config.head_dim});
      add("self_attn.k_norm.weight", {config.head_dim});
      continue;
    }
    add("linear_attn.in_proj_qkv.weight", {config.delta.channels(), hidden});
    add("linear_attn.in_proj_z.weight", {values, hidden});
    add("linear_attn.in_proj_a.weight", {config.delta.v_heads, hidden});
    add("linear_attn.in_proj_b.weight", {config.delta.v_heads, hidden});
    add("linear_attn.conv1d.weight", {config.delta.channels(), 1, config.delta.taps});
    add("linear_attn.A_log", {config.delta.v_heads});
    add("linear_attn.dt_bias", {config.delta.v_heads});
    add("linear_attn.norm.weight", {config.delta.v_dim});
    add("linear_attn.out_proj.weight", {hidden, values});
  }
  return shapes;
}

Transformer hybrid_model(uint64_t seed, TransformerOptions options) {
  const ModelConfig config = hybrid_config();
  return {config, RandomCheckpoint(hybrid_tensors(config), seed), options};
}

}  // namespace kvarena::testing
