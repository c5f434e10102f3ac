#include "harness/engine/session/prompt_meter.h"

#include <algorithm>
#include <cmath>

#include "harness/cache/attend_plan.h"
#include "harness/cache/entry_ranges_view.h"

namespace kvarena {
namespace {

/// Logarithms of the denominators of dense attention, [q_len, q_heads].
std::vector<float> dense_lse(const LayerCache& cache, const LayerQueries& queries) {
  const LayerShape& shape = cache.shape();
  const int64_t rows = queries.q_len * shape.q_heads;
  std::vector<float> out(static_cast<size_t>(rows * shape.head_dim)), running(static_cast<size_t>(2 * rows));
  std::vector<float> lse(static_cast<size_t>(rows));
  const kernels::AttentionState state{.out = out.data(), .max = running.data(), .sum = running.data() + rows};
  kernels::init_attention(state, queries.q_len, shape.q_heads, shape.head_dim, shape.sinks);
  attend(cache.tail().plan_newest(queries), state);
  kernels::finish_attention(state, queries.q_len, shape.q_heads, shape.head_dim, lse.data());
  return lse;
}

PromptAttention measured(const EntryRangesView& view, const LayerCache& cache, const LayerQueries& queries,
                         const float* lse) {
  const std::vector<float> dense = dense_lse(cache, queries);
  double kept = 0;
  for (size_t i = 0; i < dense.size(); ++i) kept += std::exp(std::min(0.0, double{lse[i]} - dense[i]));
  const int64_t pairs = cache.shape().q_heads * queries.q_len * (queries.q_len + 1) / 2;
  return {.computed = static_cast<double>(view.pairs(queries.q_len)) / static_cast<double>(pairs),
          .kept = kept / static_cast<double>(dense.size())};
}

}  // namespace

void PromptMeter::after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) {
  const auto* const view = dynamic_cast<const EntryRangesView*>(cache.view.get());
  layers_.push_back(view != nullptr ? measured(*view, cache, queries, lse) : PromptAttention{});
  ForwardingHooks::after_attention(layer, cache, queries, lse);
}

PromptAttention PromptMeter::mean() const {
  PromptAttention sum{.computed = 0, .kept = 0};
  for (const PromptAttention& layer : layers_) {
    sum.computed += layer.computed / static_cast<double>(layers_.size());
    sum.kept += layer.kept / static_cast<double>(layers_.size());
  }
  return sum;
}

}  // namespace kvarena
