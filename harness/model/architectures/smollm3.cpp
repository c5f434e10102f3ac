// SmolLM3: Llama with layers that are not rotated, every fourth as published.

#include "harness/model/architectures/families.h"
#include "harness/model/gguf.h"

namespace kvarena {
namespace {

void read(const JsonSection& root, ModelConfig& config) {
  read_attention_biases(root, false, config);
  config.mlp_bias = root.boolean("mlp_bias", false);
  config.tie_embeddings = root.boolean("tie_word_embeddings", true);
  read_unrotated_layers(root, config);
  if (root.boolean("use_sliding_window", false)) read_sliding_window(root, 0, config);
}

/// The format does not say which layers.
void read_gguf(const GgufFile& /*file*/, const std::string& /*prefix*/, ModelConfig& config) {
  leave_unrotated(kUnrotatedInterval, config);
}

}  // namespace

const Architecture kSmolLm3{
    .name = "smollm3", .gguf = "smollm3", .read = read, .read_gguf = read_gguf, .rope_theta = 2e6, .gguf_pairs = true};

}  // namespace kvarena
