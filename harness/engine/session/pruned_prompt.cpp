#include "harness/engine/session/pruned_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "harness/cache/attend_plan.h"
#include "harness/core/error.h"
#include "harness/model/pass_checks.h"

namespace kvarena {
namespace {

/// Gathers what the voters of a layer attend to, block by block, and asks the method who goes on.
class Votes final : public RowPruner {
 public:
  Votes(const Pruner& pruner, int64_t prompt_tokens, int64_t layers)
      : pruner_(&pruner), prompt_tokens_(prompt_tokens), layers_(layers), weights_(pruner.votes(prompt_tokens)) {
    KVARENA_ASSERT(!weights_.empty() && static_cast<int64_t>(weights_.size()) <= prompt_tokens,
                   fmt::format("{} voters of {} tokens", weights_.size(), prompt_tokens));
  }

  void attended(int64_t layer, std::span<const int32_t> positions, const LayerCache& cache, const LayerQueries& queries,
                const float* lse) override {
    if (!pruner_->prunes(layer, layers_)) return;
    const LayerShape& shape = cache.shape();
    const int64_t first_voter = prompt_tokens_ - static_cast<int64_t>(weights_.size());
    const auto from = std::ranges::lower_bound(positions, first_voter) - positions.begin();
    const int64_t voters = static_cast<int64_t>(positions.size()) - from;
    if (voters == 0) return;
    // Behind a voter all tokens are there: so many entries the layer will have.
    const int64_t most = cache.tail().entries(0) + prompt_tokens_ - 1 - positions.back();
    sums_.resize(static_cast<size_t>(shape.q_heads * most), 0.0F);
    // exp(score - lse) is multiplied by a vote's weight through its denominator.
    std::vector<float> weighted(static_cast<size_t>(voters * shape.q_heads));
    for (int64_t t = 0; t < voters; ++t) {
      const float shift = std::log(weights_[positions[from + t] - first_voter]);
      for (int64_t h = 0; h < shape.q_heads; ++h) {
        weighted[t * shape.q_heads + h] = lse[(from + t) * shape.q_heads + h] - shift;
      }
    }
    const LayerQueries own{.q = queries.q + from * queries.q_stride,
                           .q_len = voters,
                           .q_stride = queries.q_stride,
                           .position = positions[from]};
    add_probabilities(cache.tail().plan_newest(own), weighted.data(), sums_.data(), most);
  }

  std::vector<int32_t> keep(int64_t layer, std::span<const int32_t> positions) override {
    if (!pruner_->prunes(layer, layers_)) return {positions.begin(), positions.end()};
    const size_t n = positions.size();
    std::vector<float> mean(n, 0.0F);
    const size_t heads = sums_.size() / n;
    for (size_t i = 0; i < n; ++i) {
      for (size_t h = 0; h < heads; ++h) mean[i] += sums_[h * n + i];
      mean[i] /= static_cast<float>(heads);
    }
    sums_.clear();
    return pruner_->keep({.layer = layer,
                          .layers = layers_,
                          .prompt_tokens = prompt_tokens_,
                          .positions = positions,
                          .attention = mean});
  }

 private:
  const Pruner* pruner_;
  int64_t prompt_tokens_;
  int64_t layers_;
  std::vector<float> weights_;
  std::vector<float> sums_;  // [q_heads, entries of the layer]
};

void require_whole_attention(const Transformer& model, int64_t tokens) {
  for (int64_t layer = 0; layer < model.config().cached_layers(); ++layer) {
    const int64_t window = model.layer_shape(layer).window;
    if (window == 0 || tokens <= window) continue;
    fail({.place = model.config().name,
          .found = fmt::format("a prompt of {} tokens, of which layer {} sees {}", tokens, layer, window),
          .expected = "layers that see the whole prompt, where tokens leave between layers",
          .action = "shorten the prompt, or take a method that compresses after the prefill"});
  }
}

}  // namespace

PrunedPrompt prune_prompt(Transformer& model, const Prefill& prompt, const Method& method, Activity& activity) {
  const auto start = std::chrono::steady_clock::now();
  const auto n = static_cast<int64_t>(prompt.tokens.size());
  const int64_t layers = model.config().cached_layers();
  require_entries(model.config(), "prompt", "a prompt whose tokens leave between layers");
  require_whole_attention(model, n);
  PrunedPrompt result{.cache = model.make_cache(), .logits = {}};
  Votes votes(*method.pruner(), n, layers);
  std::vector<int32_t> everything(static_cast<size_t>(n));
  std::iota(everything.begin(), everything.end(), 0);
  const Recomputed computed =
      model.recompute({.tokens = prompt.tokens, .positions = everything, .cache = &result.cache, .pruner = &votes});
  result.logits.assign(computed.logits.begin(), computed.logits.end());

  std::vector<LayerContext> contexts;
  std::vector<LayerObservations> seen(static_cast<size_t>(layers));
  for (int64_t layer = 0; layer < layers; ++layer) {
    seen[layer].entries = computed.rows[layer];
    activity.entries_dropped += (n - computed.rows[layer]) * model.layer_shape(layer).kv_heads;
    contexts.push_back({.layer = layer,
                        .layers = layers,
                        .cache = result.cache.layers[layer],
                        .activity = activity,
                        .prompt_tokens = n,
                        .model = prompt.model.get(),
                        .prompt = prompt.tokens,
                        .request = &result.cache});
  }
  method.compress_all(contexts, seen);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace kvarena
