#include "harness/model/attend_sequence.h"

#include "harness/cache/attend_plan.h"
#include "harness/cache/tree_view.h"
#include "harness/core/error.h"
#include "kernels/attention/attention.h"

namespace kvarena {

LayerQueries queries_of(const SequencePass& pass, const QkvRows& rows, const float* hidden) {
  const bool hidden_wanted = pass.hooks != nullptr && pass.hooks->wants_hidden();
  return {.q = rows.q,
          .q_len = std::ssize(pass.tokens),
          .q_stride = rows.q_stride,
          .position = pass.cache->length,
          .hidden = hidden_wanted ? hidden : nullptr,
          .tokens = pass.tokens.data()};
}

void attend_sequence(int64_t layer, const SequencePass& pass, const QkvRows& rows, const float* hidden,
                     const AttentionMemory& memory) {
  const auto q_len = static_cast<int64_t>(pass.tokens.size());
  LayerCache& cache = pass.cache->layers[layer];
  const LayerShape& shape = cache.shape();
  cache.append(rows.keys, rows.values, q_len, rows.kv_stride, pass.cache->length);

  const LayerQueries queries = queries_of(pass, rows, hidden);
  if (!pass.parents.empty()) cache.view = std::make_unique<TreeView>(cache.tail(), pass.parents);
  if (pass.hooks != nullptr) pass.hooks->before_attention(layer, cache, queries);

  kernels::AttentionState state{
      .out = memory.attended, .max = memory.running, .sum = memory.running + q_len * shape.q_heads};
  kernels::init_attention(state, q_len, shape.q_heads, shape.head_dim, shape.sinks);
  kernels::AttentionReader* const reader = pass.hooks != nullptr ? pass.hooks->reader(layer, cache, queries) : nullptr;
  KVARENA_ASSERT(!cache.view || reader == nullptr, "views show nobody what they attend to");
  attend(cache.plan(queries), state, reader);
  kernels::finish_attention(state, q_len, shape.q_heads, shape.head_dim, memory.lse);
  if (!pass.parents.empty()) cache.view.reset();
  if (pass.hooks != nullptr) pass.hooks->after_attention(layer, cache, queries, memory.lse);
}

}  // namespace kvarena
