#include "harness/engine/compressed_cache.h"

namespace kvarena {

KvCache compress_prompt(const Prefill& prompt, const Method& method, Activity& activity) {
  KvCache cache = prompt.cache.clone();
  const auto layers = static_cast<int64_t>(cache.layers.size());
  for (int64_t layer = 0; layer < layers; ++layer) {
    LayerContext context{.layer = layer,
                         .layers = layers,
                         .cache = cache.layers[layer],
                         .activity = activity,
                         .prompt_tokens = static_cast<int64_t>(prompt.tokens.size())};
    method.compress(context, prompt.observations[layer]);
  }
  return cache;
}

}  // namespace kvarena
