// Mixtral: Mistral's layers with experts chosen by a softmax. GGUF files call themselves llama.

#include "harness/model/architectures/families.h"

namespace kvarena {
namespace {

void read(const JsonSection& root, ModelConfig& config) {
  read_sliding_window(root, 0, config);
  config.expert.experts = root.integer("num_local_experts");
  config.expert.experts_per_token = root.integer("num_experts_per_tok");
  config.expert.intermediate_size = config.intermediate_size;
  config.expert.normalize_weights = true;
}

}  // namespace

const Architecture kMixtral{.name = "mixtral",
                            .read = read,
                            .tensors = {.router = "block_sparse_moe.gate",
                                        .experts = "block_sparse_moe.experts.",
                                        .gate = "w1",
                                        .up = "w3",
                                        .down = "w2"},
                            .rope_theta = 1e6};

}  // namespace kvarena
