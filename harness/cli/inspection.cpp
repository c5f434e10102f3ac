#include "harness/cli/inspection.h"

#include <algorithm>
#include <iterator>

#include "harness/cache/attend_plan.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/forwarding_hooks.h"
#include "harness/engine/session/observe.h"

namespace kvarena::cli {
namespace {

/// Positions that `kv_head` holds over all segments, ascending.
std::vector<int32_t> held(const LayerCache& layer, int64_t kv_head) {
  std::vector<int32_t> positions;
  for (const auto& segment : layer.segments()) {
    const std::vector<int32_t> part = segment->positions(kv_head);
    positions.insert(positions.end(), part.begin(), part.end());
  }
  std::ranges::sort(positions);
  return positions;
}

const char* form_of(const AttentionItem& stored) {
  if (!stored.packed.empty() || !stored.steps.empty() || stored.gather) return "packed";
  return stored.ragged ? "ragged" : "dense";
}

LayerInfo describe_layer(const LayerCache& layer) {
  LayerInfo info;
  info.index_bytes = layer.index ? layer.index->bytes() : 0;
  info.bytes = layer.bytes();
  const int64_t heads = layer.shape().kv_heads;
  for (const auto& segment : layer.segments()) {
    SegmentInfo part{.form = form_of(plan_of(*segment, {}).items.front()), .bytes = segment->bytes(), .entries = {}};
    for (int64_t head = 0; head < heads; ++head) part.entries.push_back(segment->entries(head));
    info.segments.push_back(std::move(part));
  }
  for (int64_t head = 0; head < heads; ++head) info.positions.push_back(held(layer, head));
  return info;
}

/// Records the entries that a method's pass attends to, between its select() and the attention itself.
class Watch final : public ForwardingHooks {
 public:
  Watch(MethodHooks& method, int64_t layers) : ForwardingHooks(&method), attended(layers), selected(layers) {}

  [[nodiscard]] HookAccess reach() const override { return std::max(HookAccess::rows, ForwardingHooks::reach()); }
  void before_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries) override {
    ForwardingHooks::before_attention(layer, cache, queries);
    const LayerShape& shape = cache.shape();
    const AttentionPlan plan = cache.plan(queries);
    const auto lists = [](const AttentionItem& item) { return !item.lists.empty(); };
    const bool listed = std::ranges::all_of(plan.items, lists);
    for (int64_t head = 0; head < shape.q_heads; ++head) {
      std::vector<int32_t>& own = attended[layer].emplace_back();
      if (!listed) own = held(cache, head / shape.group());
      for (const AttentionItem& item : plan.items) {
        if (listed) std::ranges::copy(positions_of(item, head), std::back_inserter(own));
      }
    }
    if (listed) note_selection(layer, shape);
  }

 private:
  /// One list a kv head where its query heads agree, otherwise one a query head.
  void note_selection(int64_t layer, const LayerShape& shape) {
    const auto& lists = attended[layer];
    bool agree = true;
    for (int64_t head = 0; head < shape.q_heads; ++head) {
      agree = agree && lists[head] == lists[head / shape.group() * shape.group()];
    }
    for (int64_t head = 0; head < shape.q_heads; head += agree ? shape.group() : 1)
      selected[layer].push_back(lists[head]);
  }

 public:
  std::vector<std::vector<std::vector<int32_t>>> attended;  // [layers][q_heads]
  std::vector<std::vector<std::vector<int32_t>>> selected;  // [layers][lists], empty where there was no view
};

/// The share of each layer's full-KV attention that falls on `attended`.
class MassKept final : public AttentionHooks {
 public:
  explicit MassKept(const std::vector<std::vector<std::vector<int32_t>>>& attended) : attended_(attended) {}
  [[nodiscard]] HookAccess reach() const override { return HookAccess::rows; }

  void after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) override {
    const LayerShape& shape = cache.shape();
    const int64_t n = cache.entries(0);  // the full cache is one dense segment: an entry's index is its position
    std::vector<float> probabilities(static_cast<size_t>(shape.q_heads * n), 0.0F);
    add_probabilities(cache.tail().plan_newest(queries), lse, probabilities.data(), n);
    double kept = 0;
    for (int64_t head = 0; head < shape.q_heads; ++head) {
      for (const int32_t position : attended_[layer][head]) kept += probabilities[head * n + position];
    }
    mass.push_back(std::clamp(kept / static_cast<double>(shape.q_heads), 0.0, 1.0));
  }

 private:
  const std::vector<std::vector<std::vector<int32_t>>>& attended_;

 public:
  std::vector<double> mass;  // [layers]
};

int32_t likeliest(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

}  // namespace

Inspection inspect(Transformer& model, const Prefill& prompt, const Method& method, int64_t steps) {
  Inspection result;
  const int64_t layers = model.config().cached_layers();
  PromptMeter meter;
  PromptState state = state_after_prompt(model, prompt, method, result.activity, &meter);
  result.prompt = meter.layers();
  KvCache& cache = state.cache;
  for (const LayerCache& layer : cache.layers) result.layers.push_back(describe_layer(layer));
  result.resident_bytes = cache.bytes();
  result.full_bytes = prompt.cache.bytes();
  result.state_bytes = cache.state_bytes();

  KvCache full = prompt.cache.clone();
  MethodHooks hooks(method, result.activity, static_cast<int64_t>(prompt.tokens.size()), prompt.model.get());
  std::vector<float> logits = std::move(state.logits);
  for (int64_t i = 0; i < steps; ++i) {
    StepInfo step{.token = likeliest(logits), .mass = {}, .selected = {}, .logits = {}};
    Watch watch(hooks, layers);
    const SequencePass pass{.tokens = {&step.token, 1}, .cache = &cache, .hooks = &watch};
    const std::span<const float> row = model.forward({&pass, 1});
    logits.assign(row.begin(), row.end());

    MassKept kept(watch.attended);
    const SequencePass reference{
        .tokens = {&step.token, 1}, .cache = &full, .hooks = &kept, .logits = LogitsRows::none};
    (void)model.forward({&reference, 1});
    step.mass = std::move(kept.mass);
    step.selected = std::move(watch.selected);
    step.logits = logits;
    result.steps.push_back(std::move(step));
  }
  return result;
}

}  // namespace kvarena::cli
