#include "harness/engine/session/compressed_cache.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "harness/core/error.h"
#include "harness/core/seconds_since.h"
#include "harness/engine/session/acted_layers.h"
#include "harness/engine/session/observe.h"
#include "harness/engine/session/prompt_meter.h"
#include "harness/engine/session/pruned_prompt.h"

namespace kvarena {
namespace {

/// Hooks of a method that attends to its prompt in its own way, beside those that observe it.
class ObservedHooks final : public MethodHooks {
 public:
  ObservedHooks(const Method& method, Activity& activity, const Prefill& prompt, AttentionHooks& observer)
      : MethodHooks(method, activity, std::ssize(prompt.tokens), prompt.model.get()), observer_(&observer) {}

  [[nodiscard]] HookAccess reach() const override { return HookAccess::attention; }
  [[nodiscard]] bool wants_hidden() const override { return MethodHooks::wants_hidden() || observer_->wants_hidden(); }
  void after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) override {
    observer_->after_attention(layer, cache, queries, lse);
    MethodHooks::after_attention(layer, cache, queries, lse);
  }
  void after_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) override {
    observer_->after_layer(layer, rows, count, hidden_size);
    MethodHooks::after_layer(layer, rows, count, hidden_size);
  }

 private:
  AttentionHooks* observer_;
};

/// The whole prompt in one pass under the method's own attention, and what the method makes of it then.
PromptState read_at_once(Transformer& model, const Prefill& prompt, const Method& method, Activity& activity,
                         PromptMeter* meter) {
  const auto start = std::chrono::steady_clock::now();
  PromptRun run(model, prompt.tokens, method.asks(), prompt.model);
  run.set_chunk(run.remaining());
  SequencePass pass = run.next_pass();
  ObservedHooks hooks(method, activity, prompt, *pass.hooks);
  pass.hooks = meter != nullptr ? &meter->watch(hooks) : &hooks;
  run.consume(model.forward({&pass, 1}));
  Prefill read = run.finish();
  tell_results(method, read.cache, prompt.layout.results);
  compress_layers(method, read.cache, read, activity);
  return {
      .cache = std::move(read.cache), .logits = std::move(read.logits), .reuse = {}, .seconds = seconds_since(start)};
}

/// The prompt through the model under the method's own attention, `most` tokens at a time.
PromptState read_prompt(Transformer& model, const Prefill& prompt, const Method& method, int64_t most,
                        Activity& activity) {
  const auto start = std::chrono::steady_clock::now();
  PromptState state{.cache = model.make_cache(), .logits = {}, .reuse = {}};
  const auto n = static_cast<int64_t>(prompt.tokens.size());
  state.cache.prompt_length = n;
  MethodHooks hooks(method, activity, n, prompt.model.get());
  while (state.cache.length < n) {
    const int64_t left = n - state.cache.length;
    const int64_t count = left == 1 ? 1 : std::min(most, left - 1);
    const SequencePass pass{.tokens = std::span(prompt.tokens).subspan(state.cache.length, count),
                            .cache = &state.cache,
                            .hooks = &hooks,
                            .logits = left == 1 ? LogitsRows::last : LogitsRows::none};
    const std::span<const float> logits = model.forward({&pass, 1});
    state.logits.assign(logits.begin(), logits.end());
  }
  state.seconds = seconds_since(start);
  return state;
}

/// Returns what `make` does or, of a prompt that keeps what methods made of it, a copy of that.
template <typename Make>
PromptState made_once(const Prefill& prompt, const Method& method, Activity& activity, const Make& make) {
  if (prompt.compressed == nullptr) return make(activity);
  auto& all = prompt.compressed->by_method;
  auto kept = all.find(&method);
  if (kept == all.end()) {
    Activity own;
    PromptState state = make(own);
    kept = all.emplace(&method, CompressedPrompts::Kept{.state = std::move(state), .activity = own}).first;
  }
  activity += kept->second.activity;
  PromptState& state = kept->second.state;
  if (kept->second.sessions > 0 && --kept->second.sessions == 0) {
    auto taken = all.extract(kept);
    return std::move(taken.mapped().state);
  }
  return {.cache = state.cache.clone(), .logits = state.logits, .reuse = state.reuse, .seconds = state.seconds};
}

/// The prompt's cache, or a clone of it, as the method's compress_all() leaves it.
PromptState compressed_state(KvCache cache, const Prefill& prompt, const Method& method, Activity& activity) {
  KVARENA_ASSERT(!cache.layers.empty(), "a prompt whose full cache was handed over");
  const auto start = std::chrono::steady_clock::now();
  // Where a device has read the prompt, it computes what the last queries attended to.
  const bool asks = cache.mirror != nullptr && method.needs().window > 0;
  const std::unique_ptr<MirrorScope> scope = asks ? cache.mirror->scores_scope(cache) : nullptr;
  tell_results(method, cache, prompt.layout.results);
  compress_layers(method, cache, prompt, activity);
  return {.cache = std::move(cache), .logits = prompt.logits, .reuse = {}, .seconds = seconds_since(start)};
}

/// The prompt's cache out of entries of earlier prompts.
PromptState reuse_entries(Transformer& model, const Prefill& prompt, const Reuser& reuser, Activity& activity) {
  ReuseMemory own;
  ReuseMemory& memory = prompt.memory ? *prompt.memory : own;
  if (!memory.facts) memory.facts = prompt.model;
  prime(model, prompt.tokens, prompt.layout, reuser, memory);
  return reused_state(reuse_prompt(model, prompt.tokens, prompt.layout, reuser, memory), activity);
}

}  // namespace

void drop_newest(LayerCache& layer, int64_t count) {
  EntrySegment& tail = layer.tail();
  if (!tail.ragged()) {
    tail.truncate(tail.entries(0) - count);
  } else {
    std::vector<std::vector<int32_t>> kept;
    for (int64_t head = 0; head < layer.shape().kv_heads; ++head) {
      kept.emplace_back(static_cast<size_t>(tail.entries(head) - count));
      std::iota(kept.back().begin(), kept.back().end(), 0);
    }
    tail.keep(kept);
  }
  if (layer.index) layer.index->entries = std::min(layer.index->entries, tail.entries(0));
}

void tell_results(const Method& method, KvCache& cache, std::span<const ResultTokens> results) {
  const auto* const reader = dynamic_cast<const ReadsToolResults*>(&method);
  if (reader != nullptr && !results.empty()) reader->take_results(cache, results);
}

std::vector<LayerContext> contexts_of(KvCache& cache, int64_t prompt_tokens, const ModelFacts* model,
                                      Activity& activity) {
  const auto layers = static_cast<int64_t>(cache.layers.size());
  std::vector<LayerContext> contexts;
  for (int64_t layer = 0; layer < layers; ++layer) {
    contexts.push_back({.layer = layer,
                        .layers = layers,
                        .cache = cache.layers[layer],
                        .activity = activity,
                        .prompt_tokens = prompt_tokens,
                        .model = model,
                        .request = &cache});
  }
  return contexts;
}

std::vector<LayerContext> contexts_of(KvCache& cache, const Prefill& prompt, Activity& activity) {
  std::vector<LayerContext> contexts =
      contexts_of(cache, static_cast<int64_t>(prompt.tokens.size()), prompt.model.get(), activity);
  for (LayerContext& layer : contexts) layer.prompt = prompt.tokens;
  return contexts;
}

bool outlives_full_cache(const Method& method) {
  return method.verifier() == nullptr && method.reuser() == nullptr && method.pruner() == nullptr &&
         method.prompt_pass() == 0 && method.needs().future == 0;
}

void hand_over(Prefill& prompt, const Method& method, PromptState state, const Activity& activity, int64_t sessions) {
  prompt.compressed = std::make_shared<CompressedPrompts>();
  prompt.compressed->by_method.emplace(
      &method, CompressedPrompts::Kept{.state = std::move(state), .activity = activity, .sessions = sessions});
}

PromptState reused_state(ReusedPrompt reused, Activity& activity) {
  activity.tokens_reused += reused.record.reused;
  const double seconds = reused.record.total_s;
  return {.cache = std::move(reused.cache),
          .logits = std::move(reused.logits),
          .reuse = std::move(reused.record),
          .seconds = seconds};
}

void compress_in_place(Prefill& prompt, const Method& method, int64_t sessions) {
  Activity activity;
  PromptState state = compressed_state(std::move(prompt.cache), prompt, method, activity);
  hand_over(prompt, method, std::move(state), activity, sessions);
}

KvCache compress_prompt(const Prefill& prompt, const Method& method, Activity& activity) {
  const auto make = [&](Activity& own) { return compressed_state(prompt.cache.clone(), prompt, method, own); };
  return made_once(prompt, method, activity, make).cache;
}

PromptState state_after_prompt(Transformer& model, const Prefill& prompt, const Method& method, Activity& activity,
                               PromptMeter* meter) {
  return made_once(prompt, method, activity, [&](Activity& own) -> PromptState {
    if (const Reuser* reuser = method.reuser()) return reuse_entries(model, prompt, *reuser, own);
    if (method.pruner() != nullptr) {
      PrunedPrompt pruned = prune_prompt(model, prompt, method, own);
      return {
          .cache = std::move(pruned.cache), .logits = std::move(pruned.logits), .reuse = {}, .seconds = pruned.seconds};
    }
    if (method.prompt_pass() == kWholePrompt) return read_at_once(model, prompt, method, own, meter);
    if (method.prompt_pass() > 0) return read_prompt(model, prompt, method, method.prompt_pass(), own);
    return compressed_state(prompt.cache.clone(), prompt, method, own);
  });
}

}  // namespace kvarena
