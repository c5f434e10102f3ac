// Llama 1 to 3.2, and what took over its description unchanged: Yi, LongChat, Vicuna, SmolLM2, DeepSeek R1's Llama
// distillations. They differ in sizes and in rope scaling alone.

#include "harness/model/architectures/families.h"

namespace kvarena {
namespace {

void read(const JsonSection& root, ModelConfig& config) {
  config.qkv_bias = root.boolean("attention_bias", false);
  config.output_bias = config.qkv_bias;
  config.mlp_bias = root.boolean("mlp_bias", false);
}

}  // namespace

const Architecture kLlama{.name = "llama", .gguf = "llama", .read = read};

}  // namespace kvarena
