#include "harness/cli/estimate_model.h"

#include "harness/core/error.h"
#include "harness/core/own_files.h"
#include "harness/cost_model/hardware.h"
#include "harness/model/gguf.h"
#include "harness/model/pass_checks.h"

namespace kvarena::cli {

cost_model::ModelShape shape_of(const ModelConfig& config) {
  require_entries(config, "estimate", "modelled costs");
  cost_model::ModelShape shape{.name = config.name,
                               .title = config.name,
                               .source = "the checkpoint's own description",
                               .layers = config.layers,
                               .hidden_size = config.hidden_size,
                               .q_heads = config.q_heads,
                               .kv_heads = config.kv_heads,
                               .head_dim = config.head_dim,
                               .intermediate_size = config.intermediate_size,
                               .vocab_size = config.vocab_size,
                               .max_position = config.max_position,
                               .tie_embeddings = config.tie_embeddings,
                               .qkv_bias = config.qkv_bias,
                               .qk_norm = config.qk_norm};
  if (config.expert.experts > 0) {
    if (config.expert.sparse_step != 1 || !config.expert.dense_layers.empty()) {
      fail({.place = config.name,
            .found = "dense layers between sparse ones",
            .expected = "sparse layers from one on, which is all that costs are modelled for"});
    }
    shape.experts = config.expert.experts;
    shape.experts_per_token = config.expert.experts_per_token;
    shape.expert_intermediate_size = config.expert.intermediate_size;
    shape.shared_experts = config.expert.shared_experts;
    shape.first_sparse_layer = config.expert.first_sparse_layer;
    shape.expert_bias = config.expert.sigmoid_scores;
  }
  if (config.is_latent()) {
    shape.kv_lora_rank = config.latent.kv_lora_rank;
    shape.q_lora_rank = config.latent.q_lora_rank;
    shape.nope_head_dim = config.latent.nope_head_dim;
    shape.rope_head_dim = config.latent.rope_head_dim;
    shape.v_head_dim = config.latent.v_head_dim;
  }
  return shape;
}

cost_model::ModelShape find_shape(const std::string& model) {
  const std::filesystem::path path = model;
  if (path.extension() == ".gguf") return shape_of(read_gguf_config(GgufFile(path)));
  if (std::filesystem::is_directory(path)) return shape_of(read_hf_config(path / "config.json"));
  const std::filesystem::path shapes = own_file("configs/shapes");
  return cost_model::read_shape(cost_model::find_description(model, shapes));
}

}  // namespace kvarena::cli
