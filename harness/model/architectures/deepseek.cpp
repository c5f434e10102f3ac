// DeepSeek V2 and V3: multi-head latent attention (arXiv:2405.04434, section 2.1), shared and routed experts. V2
// chooses experts by a softmax, V3 by sigmoids with a correction bias (arXiv:2412.19437, section 2.1.2).

#include <fmt/format.h>

#include "harness/core/error.h"
#include "harness/model/architectures/families.h"
#include "harness/model/gguf.h"

namespace kvarena {
namespace {

void read_latent_attention(const JsonSection& root, ModelConfig& config) {
  LatentAttentionConfig& latent = config.latent;
  latent.kv_lora_rank = root.integer("kv_lora_rank");
  latent.q_lora_rank = root.integer("q_lora_rank", 0);
  latent.nope_head_dim = root.integer("qk_nope_head_dim");
  latent.rope_head_dim = root.integer("qk_rope_head_dim");
  latent.v_head_dim = root.integer("v_head_dim");
  config.head_dim = latent.nope_head_dim + latent.rope_head_dim;
  config.kv_heads = config.q_heads;
  config.rope_interleaved = root.boolean("rope_interleave", true);
  read_attention_biases(root, false, config);
}

void read_experts(const JsonSection& root, ModelConfig& config) {
  if (!root.has("n_routed_experts")) return;
  ExpertConfig& expert = config.expert;
  expert.experts = root.integer("n_routed_experts");
  expert.experts_per_token = root.integer("num_experts_per_tok");
  expert.intermediate_size = root.integer("moe_intermediate_size");
  expert.shared_experts = root.integer("n_shared_experts", 0);
  expert.shared_intermediate_size = expert.shared_experts * expert.intermediate_size;
  expert.first_sparse_layer = root.integer("first_k_dense_replace", 0);
  expert.weight_scale = root.number("routed_scaling_factor", 1.0);
}

void read_v2(const JsonSection& root, ModelConfig& config) {
  read_latent_attention(root, config);
  read_experts(root, config);
  if (config.expert.experts == 0) return;
  const std::string method = root.string("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    config.expert.groups = root.integer("n_group");
    config.expert.groups_per_token = root.integer("topk_group");
  } else if (method != "greedy") {
    root.fail_value("topk_method", "greedy or group_limited_greedy");
  }
  // The authors' code and the reference library disagree on what it means; no published V2 sets it.
  if (root.boolean("norm_topk_prob", false)) root.fail_value("norm_topk_prob", "false in a deepseek_v2 model");
}

void read_v3(const JsonSection& root, ModelConfig& config) {
  read_latent_attention(root, config);
  read_experts(root, config);
  config.expert.sigmoid_scores = config.expert.correction = true;
  config.expert.normalize_weights = root.boolean("norm_topk_prob", true);
  config.expert.groups = root.integer("n_group", 1);
  config.expert.groups_per_token = root.integer("topk_group", 1);
}

/// Files of both generations; the gating function tells them apart.
void read_gguf(const GgufFile& file, const std::string& prefix, ModelConfig& config) {
  LatentAttentionConfig& latent = config.latent;
  latent.kv_lora_rank = file.get_int(prefix + ".attention.kv_lora_rank");
  latent.q_lora_rank = file.find_int(prefix + ".attention.q_lora_rank").value_or(0);
  latent.rope_head_dim = file.get_int(prefix + ".rope.dimension_count");
  // Newer files describe the latent as one key/value head and the real sizes in *_mla.
  const std::optional<int64_t> key = file.find_int(prefix + ".attention.key_length_mla");
  const std::optional<int64_t> value = file.find_int(prefix + ".attention.value_length_mla");
  config.head_dim = key ? *key : file.get_int(prefix + ".attention.key_length");
  latent.v_head_dim = value ? *value : file.get_int(prefix + ".attention.value_length");
  latent.nope_head_dim = config.head_dim - latent.rope_head_dim;
  config.kv_heads = config.q_heads;
  config.rope_interleaved = true;
  // 0.1 * mscale_all_dim; every published model has mscale equal to mscale_all_dim.
  config.rope_scaling.mscale_all_dim = 10 * file.find_float(prefix + ".rope.scaling.yarn_log_multiplier").value_or(0.0);
  config.rope_scaling.mscale = config.rope_scaling.mscale_all_dim;
  config.expert.correction = config.expert.sigmoid_scores;
  if (config.expert.sigmoid_scores) config.architecture = "deepseek_v3";
}

}  // namespace

const Architecture kDeepSeekV2{.name = "deepseek_v2", .gguf = "deepseek2", .read = read_v2, .read_gguf = read_gguf};
const Architecture kDeepSeekV3{.name = "deepseek_v3", .read = read_v3};

}  // namespace kvarena
