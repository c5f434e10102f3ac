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

void store_at(LayerCache& cache, const QkvRows& rows, std::span<const int32_t> positions) {
  for (size_t first = 0; first < positions.size();) {
    const int64_t held = cache.tail().entries(0);
    size_t end = first + 1;
    const auto follows = [&](size_t i) {
      return positions[i] == positions[i - 1] + 1 && (positions[i] < held) == (positions[first] < held);
    };
    while (end < positions.size() && follows(end)) ++end;
    const QkvRows run = rows.from(static_cast<int64_t>(first));
    const auto count = static_cast<int64_t>(end - first);
    if (positions[first] < held) {
      cache.tail().replace(positions[first], run.keys, run.values, count, run.kv_stride);
    } else {
      cache.append(run.keys, run.values, count, run.kv_stride, positions[first]);
    }
    first = end;
  }
}

void attend_at(const EntrySegment& held, std::span<const int32_t> places, const QkvRows& rows,
               const AttentionMemory& memory) {
  const LayerShape& shape = held.shape();
  const int64_t q_len = std::ssize(places);
  std::vector<int32_t> seen;
  for (const int32_t place : places) seen.push_back(place + 1);
  std::vector<kernels::HeadRun> runs;
  for (int64_t head = 0; head < shape.kv_heads; ++head) runs.push_back(held.run(head));
  const kernels::AttentionState state{
      .out = memory.attended, .max = memory.running, .sum = memory.running + q_len * shape.q_heads};
  kernels::init_attention(state, q_len, shape.q_heads, shape.head_dim, shape.sinks);
  const kernels::AttendProblem problem{.q = rows.q,
                                       .q_len = q_len,
                                       .q_token_stride = rows.q_stride,
                                       .q_head_stride = shape.head_dim,
                                       .runs = runs.data(),
                                       .dtype = shape.dtype,
                                       .seen = seen.data(),
                                       .window = shape.window,
                                       .chunked = shape.chunked,
                                       .state = state};
  kernels::attend({.problems = {&problem, 1},
                   .q_heads = shape.q_heads,
                   .kv_heads = shape.kv_heads,
                   .head_dim = shape.head_dim,
                   .scale = attention_scale(shape),
                   .arithmetic = shape.arithmetic});
  kernels::finish_attention(state, q_len, shape.q_heads, shape.head_dim, memory.lse);
}

void attend_sequence(int64_t layer, const SequencePass& pass, const QkvRows& rows, const float* hidden,
                     const AttentionMemory& memory) {
  const auto q_len = static_cast<int64_t>(pass.tokens.size());
  LayerCache& cache = pass.cache->layers[layer];
  const LayerShape& shape = cache.shape();
  if (!pass.positions.empty()) {
    store_at(cache, rows, pass.positions);
    return attend_at(cache.tail(), pass.positions, rows, memory);
  }
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
