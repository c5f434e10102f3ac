#include "harness/engine/compressed_cache.h"

namespace kvarena {

KvCache compress_prompt(const Prefill& prompt, const Method& method, Activity& activity) {
  KvCache cache = prompt.cache.clone();
  const auto layers = static_cast<int64_t>(cache.layers.size());
  std::vector<LayerContext> contexts;
  for (int64_t layer = 0; layer < layers; ++layer) {
    contexts.push_back({.layer = layer,
                        .layers = layers,
                        .cache = cache.layers[layer],
                        .activity = activity,
                        .prompt_tokens = static_cast<int64_t>(prompt.tokens.size()),
                        .model = prompt.model.get(),
                        .prompt = prompt.tokens});
  }
  method.compress_all(contexts, prompt.observations);
  return cache;
}

}  // namespace kvarena
