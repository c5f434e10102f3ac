// Mistral 7B (the first with a sliding window in every layer), Mistral Nemo and Small, whose heads are wider than
// hidden_size / heads. GGUF files call themselves llama.

#include "harness/model/architectures/families.h"

namespace kvarena {
namespace {

void read(const JsonSection& root, ModelConfig& config) { read_sliding_window(root, 0, config); }

}  // namespace

const Architecture kMistral{.name = "mistral", .read = read};

}  // namespace kvarena
