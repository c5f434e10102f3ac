// Qwen3-Next, and Qwen3.5 as text alone: three layers of four pass a state by the gated delta rule (arXiv:2412.06464);
// the fourth attends, a quarter of each head rotated, and sigmoids multiply what it gives. Experts with a gated shared
// one, or a dense feed-forward in Qwen3.5's smaller models.

#include <algorithm>
#include <array>

#include "harness/model/architectures/families.h"
#include "harness/model/gguf.h"

namespace kvarena {
namespace {

constexpr int64_t kInterval = 4;  // every fourth layer attends
constexpr int64_t kTaps = 4;
constexpr double kRotaryShare = 0.25;
constexpr std::array kRenamed = {NamePair{"post_attention_norm", "post_attention_layernorm"},
                                 NamePair{"attn_qkv", "linear_attn.in_proj_qkv"},
                                 NamePair{"attn_gate", "linear_attn.in_proj_z"},
                                 NamePair{"ssm_in", "linear_attn.in_proj_qkvz"},
                                 NamePair{"ssm_ba", "linear_attn.in_proj_ba"},
                                 NamePair{"ssm_conv1d", "linear_attn.conv1d"},
                                 NamePair{"ssm_a", "linear_attn.A_log"},
                                 NamePair{"ssm_dt", "linear_attn.dt"},
                                 NamePair{"ssm_norm", "linear_attn.norm"},
                                 NamePair{"ssm_out", "linear_attn.out_proj"},
                                 NamePair{"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
                                 NamePair{"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                                 NamePair{"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                                 NamePair{"ffn_down_shexp", "mlp.shared_expert.down_proj"}};

void set_features(ModelConfig& config) {
  config.qk_norm = true;
  config.output_gate = true;
}

/// Reads which layers are recurrent: those of "layer_types", else all but the last of each "full_attention_interval".
void read_layers(const JsonSection& root, ModelConfig& config) {
  config.recurrent_layers = layers_of_type(root, "linear_attention", config.layers);
  const int64_t interval = root.integer("full_attention_interval", kInterval);
  if (interval < 1) root.fail_value("full_attention_interval", "a number of layers");
  if (config.recurrent_layers.empty()) config.recurrent_layers = all_but_each_last(interval, config.layers);
}

void read_hybrid(const JsonSection& root, ModelConfig& config) {
  set_features(config);
  config.norms_less_one = true;
  read_attention_biases(root, false, config);
  config.delta = {.k_heads = root.integer("linear_num_key_heads"),
                  .v_heads = root.integer("linear_num_value_heads"),
                  .k_dim = root.integer("linear_key_head_dim"),
                  .v_dim = root.integer("linear_value_head_dim"),
                  .taps = root.integer("linear_conv_kernel_dim", kTaps)};
  read_layers(root, config);
}

void read_experts(const JsonSection& root, ModelConfig& config) {
  ExpertConfig& expert = config.expert;
  expert.experts = root.integer("num_experts");
  expert.experts_per_token = root.integer("num_experts_per_tok");
  expert.intermediate_size = root.integer("moe_intermediate_size");
  expert.shared_experts = 1;
  expert.shared_intermediate_size = root.integer("shared_expert_intermediate_size");
  expert.shared_gate = true;
  expert.normalize_weights = true;
}

void read_next(const JsonSection& root, ModelConfig& config) {
  read_hybrid(root, config);
  read_experts(root, config);
  config.expert.sparse_step = root.integer("decoder_sparse_step", 1);
  config.expert.dense_layers = root.integers("mlp_only_layers");
  config.expert.normalize_weights = root.boolean("norm_topk_prob", true);
}

/// Norms are stored whole, decays in place of their logarithms.
void read_gguf(const GgufFile& file, const std::string& prefix, ModelConfig& config) {
  set_features(config);
  const int64_t v_heads = file.get_int(prefix + ".ssm.time_step_rank");
  config.delta = {.k_heads = file.get_int(prefix + ".ssm.group_count"),
                  .v_heads = v_heads,
                  .k_dim = file.get_int(prefix + ".ssm.state_size"),
                  .v_dim = file.get_int(prefix + ".ssm.inner_size") / std::max<int64_t>(1, v_heads),
                  .taps = file.get_int(prefix + ".ssm.conv_kernel"),
                  .negative_decay = true};
  const int64_t interval = file.find_int(prefix + ".full_attention_interval").value_or(kInterval);
  config.recurrent_layers = all_but_each_last(std::max<int64_t>(1, interval), config.layers);
  config.rotated_channels = file.get_int(prefix + ".rope.dimension_count");
  ExpertConfig& expert = config.expert;
  expert.shared_experts = 1;
  expert.shared_intermediate_size = file.get_int(prefix + ".expert_shared_feed_forward_length");
  expert.shared_gate = true;
  // The format leaves the flag out: every published model of the family sets it.
  expert.normalize_weights = file.find_bool(prefix + ".expert_weights_norm").value_or(true);
}

void read_sparse(const JsonSection& root, ModelConfig& config) {
  read_hybrid(root, config);
  read_experts(root, config);
}

constexpr TensorNames kNextTensors = {
    .shared = "mlp.shared_expert.", .in_qkvz = "linear_attn.in_proj_qkvz", .in_ba = "linear_attn.in_proj_ba"};
/// Files name the text's part of a model that sees.
constexpr TensorNames kTensors = {.embedding = "model.language_model.embed_tokens",
                                  .final_norm = "model.language_model.norm.weight",
                                  .layer = "model.language_model.layers.",
                                  .shared = "mlp.shared_expert."};

}  // namespace

const Architecture kQwen3Next{.name = "qwen3_next",
                              .gguf = "qwen3next",
                              .read = read_next,
                              .read_gguf = read_gguf,
                              .tensors = kNextTensors,
                              .rotary_share = kRotaryShare,
                              .renamed = kRenamed};

const Architecture kQwen35{
    .name = "qwen3_5_text", .gguf = "", .read = read_hybrid, .tensors = kTensors, .rotary_share = kRotaryShare};

const Architecture kQwen35Moe{
    .name = "qwen3_5_moe_text", .gguf = "", .read = read_sparse, .tensors = kTensors, .rotary_share = kRotaryShare};

}  // namespace kvarena
