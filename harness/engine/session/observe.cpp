#include "harness/engine/session/observe.h"

#include <algorithm>
#include <chrono>

#include "harness/cache/residual_reader.h"
#include "kernels/attention_sums/attention_sums.h"
#include "kernels/common/parallel.h"

namespace kvarena {

PromptObserver::PromptObserver(const Needs& needs, int64_t prompt_tokens, int64_t layers, int64_t hidden_size,
                               const ModelFacts& model)
    : needs_(needs),
      prompt_tokens_(prompt_tokens),
      hidden_size_(hidden_size),
      model_(&model),
      back_(model.rotation),
      own_back_(model.own_rotation),
      seen_(static_cast<size_t>(layers)) {
  for (const Tap tap : needs.taps) tapped_.push_back(tapped_layer(tap, layers));
  for (LayerObservations& seen : seen_) {
    seen.entries = prompt_tokens;
    seen.window = std::min(needs.window, prompt_tokens);
    for (const int64_t left_out : needs.query_moments) seen.query_moments.push_back({.left_out = left_out});
    for (const auto& each : needs.statistics) seen.statistics.push_back({.id = each->id(), .width = each->width()});
  }
}

HookAccess PromptObserver::reach() const {
  const bool reads = needs_.prompt_attention || !needs_.statistics.empty();
  const bool looks = needs_.window > 0 || needs_.hidden || !needs_.query_moments.empty() || !needs_.taps.empty();
  return reads || looks ? HookAccess::rows : HookAccess::nothing;
}

LayerObservations PromptObserver::take(int64_t layer) {
  for (QueryMoments& moments : seen_[layer].query_moments) finish_moments(moments);
  return std::move(seen_[layer]);
}

std::vector<LayerObservations> PromptObserver::take() {
  std::vector<LayerObservations> all;
  for (int64_t layer = 0; layer < std::ssize(seen_); ++layer) all.push_back(take(layer));
  return all;
}

void PromptObserver::keep_window(LayerObservations& seen, const LayerShape& shape, const LayerQueries& queries,
                                 const float* lse) {
  const int64_t first = prompt_tokens_ - seen.window;  // position of the window's first query
  const int64_t row = shape.q_heads * shape.head_dim;
  for (int64_t t = std::max<int64_t>(0, first - queries.position); t < queries.q_len; ++t) {
    const float* q = queries.q + t * queries.q_stride;
    seen.window_queries.insert(seen.window_queries.end(), q, q + row);
    seen.window_lse.insert(seen.window_lse.end(), lse + t * shape.q_heads, lse + (t + 1) * shape.q_heads);
  }
}

kernels::AttentionReader* PromptObserver::reader(int64_t layer, const LayerCache& cache, const LayerQueries& queries) {
  const LayerShape& shape = cache.shape();
  if (!watches(shape) || (!needs_.prompt_attention && needs_.statistics.empty())) return nullptr;
  layer_ = layer;
  position_ = queries.position;
  LayerObservations& seen = seen_[layer];
  if (needs_.prompt_attention) seen.prompt_attention.resize(static_cast<size_t>(shape.q_heads * prompt_tokens_), 0.0F);
  for (GatheredStatistic& each : seen.statistics) {
    each.sums.resize(static_cast<size_t>(shape.kv_heads * each.width * prompt_tokens_), 0.0F);
  }
  threads_ = kernels::thread_count();
  return this;
}

void PromptObserver::read(const kernels::ProbabilityRows& rows) {
  const auto start = std::chrono::steady_clock::now();
  LayerObservations& seen = seen_[layer_];
  if (needs_.prompt_attention) {
    float* const sums = seen.prompt_attention.data() + rows.kv_head * rows.group * prompt_tokens_;
    kernels::add_probabilities(rows, sums, prompt_tokens_);
  }
  for (size_t i = 0; i < needs_.statistics.size(); ++i) {
    const auto size = static_cast<size_t>(needs_.statistics[i]->width() * prompt_tokens_);
    const auto sums = std::span(seen.statistics[i].sums).subspan(static_cast<size_t>(rows.kv_head) * size, size);
    needs_.statistics[i]->add({.rows = rows, .layer = layer_, .position = position_ + rows.first_token}, sums);
  }
  reading_ns_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count() / threads_;
}

std::vector<kernels::QuerySum> PromptObserver::only_sums() {
  LayerObservations& seen = seen_[layer_];
  std::vector<kernels::QuerySum> sums;
  if (needs_.prompt_attention)
    sums.push_back({.what = kernels::ProbabilitySum{}, .data = seen.prompt_attention.data(), .stride = prompt_tokens_});
  for (size_t i = 0; i < needs_.statistics.size(); ++i) {
    const std::optional<kernels::SumOfQueries> what = needs_.statistics[i]->sum(layer_, prompt_tokens_);
    if (!what) return {};
    sums.push_back({.what = *what, .data = seen.statistics[i].sums.data(), .stride = prompt_tokens_});
  }
  return sums;
}

void PromptObserver::after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) {
  if (!watches(cache.shape())) return;
  const auto start = std::chrono::steady_clock::now();
  observe(layer, cache.shape(), queries, lse);
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void PromptObserver::observe(int64_t layer, const LayerShape& shape, const LayerQueries& queries, const float* lse) {
  LayerObservations& seen = seen_[layer];
  BackRotation& back = model_->rotates_apart(layer) ? own_back_ : back_;
  if (seen.window > 0) keep_window(seen, shape, queries, lse);
  for (QueryMoments& moments : seen.query_moments) add_moments(moments, shape, back, queries);
  if (needs_.hidden) {
    seen.hidden.insert(seen.hidden.end(), queries.hidden, queries.hidden + queries.q_len * hidden_size_);
  }
}

void PromptObserver::after_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) {
  if (std::ranges::find(tapped_, layer) == tapped_.end()) return;
  const auto start = std::chrono::steady_clock::now();
  seen_[layer].residual.insert(seen_[layer].residual.end(), rows, rows + count * hidden_size);
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

HookAccess MethodHooks::reach() const { return method_->reach(); }

bool MethodHooks::known(const KvCache& cache) const {
  const auto has_index = [](const LayerCache& layer) { return layer.index != nullptr; };
  const auto first = std::ranges::find_if(cache.layers, has_index);
  for (const LayerIndex* index : {cache.index.get(), first == cache.layers.end() ? nullptr : first->index.get()}) {
    const auto* const choice = dynamic_cast<const KnownChoice*>(index);
    if (choice != nullptr && choice->known(cache)) return true;
  }
  return false;
}

void MethodHooks::before_pass(KvCache& cache, std::span<const int32_t> tokens) {
  cache_ = &cache;
  if (!acted_) acted_.emplace(*method_, cache);
  RequestContext request{.cache = cache, .activity = *activity_, .prompt_tokens = prompt_tokens_, .model = model_};
  method_->on_tokens(request, tokens);
  method_->begin_step(request, static_cast<int64_t>(tokens.size()));
}

void MethodHooks::before_attention(int64_t layer, LayerCache& /*cache*/, const LayerQueries& queries) {
  if (!acted_->holds(layer)) return;
  LayerContext view = context(layer);
  method_->select(view, queries);
}

void MethodHooks::after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) {
  cache.view.reset();
  if (!acted_->holds(layer)) return after_observe(cache);
  LayerContext view = context(layer);
  method_->observe(view, queries, lse);
  after_observe(cache);
  method_->after_append(view);
}

void MethodHooks::after_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) {
  if (auto* const reader = dynamic_cast<ResidualReader*>(cache_->index.get()))
    reader->see_layer(layer, rows, count, hidden_size);
}

}  // namespace kvarena
