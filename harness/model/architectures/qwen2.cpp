// Qwen2 and Qwen2.5: biases on queries, keys and values; a sliding window, when switched on, in the upper layers.

#include "harness/model/architectures/families.h"

namespace kvarena {
namespace {

void read(const JsonSection& root, ModelConfig& config) {
  config.qkv_bias = true;
  if (root.boolean("use_sliding_window", false))
    read_sliding_window(root, root.integer("max_window_layers", 0), config);
}

}  // namespace

const Architecture kQwen2{.name = "qwen2", .gguf = "qwen2", .read = read};

}  // namespace kvarena
