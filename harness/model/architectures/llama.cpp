// Llama 1 to 3.2, and what took over its description unchanged: Yi, LongChat, Vicuna, SmolLM2, DeepSeek R1's Llama
// distillations. They differ in sizes and in rope scaling alone.

#include "harness/model/architectures/families.h"

namespace kvarena {
namespace {

void read(const JsonSection& root, ModelConfig& config) {
  read_attention_biases(root, false, config);
  config.mlp_bias = root.boolean("mlp_bias", false);
}

/// Files with experts are Mixtral's, whose weights are normalised.
void read_gguf(const GgufFile& /*file*/, const std::string& /*prefix*/, ModelConfig& config) {
  config.expert.normalize_weights = config.expert.experts > 0;
}

}  // namespace

const Architecture kLlama{.name = "llama", .gguf = "llama", .read = read, .read_gguf = read_gguf, .gguf_pairs = true};

}  // namespace kvarena
