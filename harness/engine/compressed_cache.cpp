#include "harness/engine/compressed_cache.h"

#include <chrono>

#include "harness/engine/pruned_prompt.h"

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
                        .prompt = prompt.tokens,
                        .request = &cache});
  }
  method.compress_all(contexts, prompt.observations);
  return cache;
}

PromptState state_after_prompt(Transformer& model, const Prefill& prompt, const Method& method, Activity& activity) {
  if (const Reuser* reuser = method.reuser()) {
    ReuseMemory own;
    ReuseMemory& memory = prompt.memory ? *prompt.memory : own;
    prime(model, prompt.tokens, prompt.layout, *reuser, memory);
    ReusedPrompt reused = reuse_prompt(model, prompt.tokens, prompt.layout, *reuser, memory);
    activity.tokens_reused += reused.record.reused;
    const double seconds = reused.record.total_s;
    return {.cache = std::move(reused.cache),
            .logits = std::move(reused.logits),
            .reuse = std::move(reused.record),
            .seconds = seconds};
  }
  if (method.pruner() != nullptr) {
    PrunedPrompt pruned = prune_prompt(model, prompt, method, activity);
    return {
        .cache = std::move(pruned.cache), .logits = std::move(pruned.logits), .reuse = {}, .seconds = pruned.seconds};
  }
  const auto start = std::chrono::steady_clock::now();
  KvCache cache = compress_prompt(prompt, method, activity);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return {.cache = std::move(cache), .logits = prompt.logits, .reuse = {}, .seconds = seconds};
}

}  // namespace kvarena
