#include "harness/engine/session/future.h"

#include <algorithm>

#include "harness/cache/attend_plan.h"
#include "harness/model/sampling.h"

namespace kvarena {
namespace {

class FutureObserver final : public AttentionHooks {
 public:
  explicit FutureObserver(Prefill& prompt) : prompt_(&prompt) {}
  [[nodiscard]] HookAccess reach() const override { return HookAccess::rows; }

  void after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) override {
    const auto n = static_cast<int64_t>(prompt_->tokens.size());
    if (prompt_->observations[layer].entries == 0) return;
    const int64_t held = cache.tail().entries(0);
    sums_.assign(static_cast<size_t>(cache.shape().q_heads * held), 0.0F);
    add_probabilities(cache.tail().plan_newest(queries), lse, sums_.data(), held);
    std::vector<float>& total = prompt_->observations[layer].future_attention;
    for (int64_t h = 0; h < cache.shape().q_heads; ++h) {
      for (int64_t i = 0; i < n; ++i) total[h * n + i] += sums_[h * held + i];
    }
  }

 private:
  Prefill* prompt_;
  std::vector<float> sums_;  // [q_heads, entries held]
};

}  // namespace

void observe_future(Transformer& model, Prefill& prompt, std::span<const int32_t> following, int64_t tokens) {
  const ModelConfig& config = model.config();
  const auto n = static_cast<int64_t>(prompt.tokens.size());
  for (LayerObservations& seen : prompt.observations) {
    if (seen.entries == 0) continue;
    seen.future_attention.assign(static_cast<size_t>(config.q_heads * n), 0.0F);
  }
  KvCache cache = prompt.cache.clone();
  FutureObserver observer(prompt);
  std::vector<float> logits = prompt.logits;
  const auto known = std::ssize(following);
  for (int64_t i = 0; i < known + tokens && cache.length < config.max_position; ++i) {
    const bool asked = i < known;
    const int32_t token = asked ? following[i] : sample(logits, {}, static_cast<uint64_t>(cache.length));
    if (!asked && std::ranges::find(config.eos, token) != config.eos.end()) return;
    const SequencePass pass{.tokens = {&token, 1}, .cache = &cache, .hooks = &observer};
    const std::span<const float> row = model.forward({&pass, 1});
    logits.assign(row.begin(), row.end());
  }
}

Prefill with_future(Transformer& model, const Prefill& prompt, std::span<const int32_t> question, int64_t tokens) {
  Prefill asked{.tokens = prompt.tokens,
                .cache = prompt.cache.clone(),
                .logits = prompt.logits,
                .observations = prompt.observations,
                .model = prompt.model,
                .seconds = prompt.seconds,
                .observe_seconds = prompt.observe_seconds,
                .layout = prompt.layout,
                .memory = prompt.memory,
                .compressed = {}};
  observe_future(model, asked, question, tokens);
  return asked;
}

}  // namespace kvarena
