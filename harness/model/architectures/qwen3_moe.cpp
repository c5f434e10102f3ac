// Qwen3-MoE: Qwen3's attention, and experts chosen by a softmax over all of them.

#include "harness/model/architectures/families.h"
#include "harness/model/gguf.h"

namespace kvarena {
namespace {

void read(const JsonSection& root, ModelConfig& config) {
  config.qk_norm = true;
  read_attention_biases(root, false, config);
  if (root.boolean("use_sliding_window", false)) read_sliding_window(root, 0, config);
  ExpertConfig& expert = config.expert;
  expert.experts = root.integer(root.has("num_local_experts") ? "num_local_experts" : "num_experts");  // newer, older
  expert.experts_per_token = root.integer("num_experts_per_tok");
  expert.intermediate_size = root.integer("moe_intermediate_size");
  expert.sparse_step = root.integer("decoder_sparse_step", 1);
  expert.dense_layers = root.integers("mlp_only_layers");
  expert.normalize_weights = root.boolean("norm_topk_prob", false);
}

void read_gguf(const GgufFile& file, const std::string& prefix, ModelConfig& config) {
  // The format leaves the flag out: every published model of the family sets it.
  config.expert.normalize_weights = file.find_bool(prefix + ".expert_weights_norm").value_or(true);
}

}  // namespace

const Architecture kQwen3Moe{.name = "qwen3_moe", .gguf = "qwen3moe", .read = read, .read_gguf = read_gguf};

}  // namespace kvarena
