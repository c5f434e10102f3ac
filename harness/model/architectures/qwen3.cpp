// Qwen3: queries and keys of each head are normalised before they are rotated.

#include "harness/model/architectures/families.h"

namespace kvarena {
namespace {

void read(const JsonSection& root, ModelConfig& config) {
  config.qk_norm = true;
  read_attention_biases(root, false, config);
  if (root.boolean("use_sliding_window", false))
    read_sliding_window(root, root.integer("max_window_layers", 0), config);
}

}  // namespace

const Architecture kQwen3{.name = "qwen3", .gguf = "qwen3", .read = read};

}  // namespace kvarena
