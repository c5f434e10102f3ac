#include "harness/engine/session/read_by_layers.h"

#include <chrono>
#include <numeric>

#include "harness/cache/sliding_window.h"
#include "harness/core/seconds_since.h"
#include "harness/engine/session/acted_layers.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/observe.h"

namespace kvarena {
namespace {

using Clock = std::chrono::steady_clock;

/// Whether all that the method observes are queries, which a layer shows as it is computed.
bool observes_queries(const Needs& needs) {
  return !needs.prompt_attention && !needs.hidden && !needs.output_projection && needs.taps.empty() &&
         needs.reconstructions.empty() && needs.restorations.empty() && needs.statistics.empty();
}

/// Keeps every row, and compresses a layer when the last of them has gone through it.
class CompressedLayers final : public RowPruner {
 public:
  CompressedLayers(const Transformer& model, Prefill& prompt, const Method& method, Activity& activity)
      : method_(&method),
        prompt_(&prompt),
        activity_(&activity),
        acted_(method, prompt.cache),
        observer_(method.asks(), std::ssize(prompt.tokens), model.config().cached_layers(), model.config().hidden_size,
                  *prompt.model) {}

  void attended(int64_t layer, std::span<const int32_t> positions, const LayerCache& /*cache*/,
                const LayerQueries& queries, const float* lse) override {
    const auto n = std::ssize(prompt_->tokens);
    LayerCache& cache = prompt_->cache.layers[static_cast<size_t>(layer)];
    observer_.after_attention(layer, cache, queries, lse);
    if (positions.back() + 1 < n) return;
    if (!acted_.holds(layer)) return release_unseen(cache, n);
    const auto start = Clock::now();
    LayerContext context = acted_.context(prompt_->cache, layer, n, prompt_->model.get(), *activity_);
    context.prompt = std::span(prompt_->tokens).subspan(static_cast<size_t>(context.prompt_begin));
    compress_layer(*method_, context, observer_.take(layer));
    compressing_s_ += seconds_since(start);
  }
  [[nodiscard]] std::vector<int32_t> keep(int64_t /*layer*/, std::span<const int32_t> positions) override {
    return {positions.begin(), positions.end()};
  }
  [[nodiscard]] double observing_seconds() const { return observer_.seconds(); }
  [[nodiscard]] double compressing_seconds() const { return compressing_s_; }

 private:
  const Method* method_;
  Prefill* prompt_;
  Activity* activity_;
  ActedLayers acted_;
  PromptObserver observer_;
  double compressing_s_ = 0;
};

}  // namespace

Prefill read_for(Transformer& model, std::span<const int32_t> tokens, const Method& method, int64_t sessions,
                 std::shared_ptr<const ModelFacts> facts, PromptLayout layout) {
  const bool recurrent = !model.config().recurrent_layers.empty();  // whose layers take tokens in their order alone
  if (recurrent || !method.compresses_by_layer() || !observes_queries(method.needs())) {
    Prefill prompt = prefill(model, tokens, method.asks(), kPrefillChunk, std::move(facts));
    prompt.layout = std::move(layout);
    compress_in_place(prompt, method, sessions);
    return prompt;
  }
  const auto start = Clock::now();
  Prefill prompt = unread_prompt(model, tokens, std::move(facts));
  prompt.layout = std::move(layout);
  tell_results(method, prompt.cache, prompt.layout.results);
  Activity activity;
  CompressedLayers layers(model, prompt, method, activity);
  std::vector<int32_t> all(tokens.size());
  std::iota(all.begin(), all.end(), 0);
  const Recomputed read =
      model.recompute({.tokens = prompt.tokens, .positions = all, .cache = &prompt.cache, .pruner = &layers});
  prompt.logits.assign(read.logits.begin(), read.logits.end());
  prompt.observe_seconds = layers.observing_seconds();
  PromptState state{
      .cache = std::move(prompt.cache), .logits = prompt.logits, .reuse = {}, .seconds = layers.compressing_seconds()};
  prompt.seconds = seconds_since(start) - state.seconds;
  hand_over(prompt, method, std::move(state), activity, sessions);
  return prompt;
}

}  // namespace kvarena
