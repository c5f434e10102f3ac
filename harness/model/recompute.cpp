// Passes over a prompt of which only some tokens are computed.

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/model/products.h"
#include "harness/model/transformer_impl.h"
#include "kernels/attention/attention.h"
#include "kernels/elementwise/elementwise.h"

namespace kvarena {
namespace {

/// Rows that pass a layer at once, which bounds activations as chunks of a prefill do. An earlier row never sees a
/// later one, so results do not depend on it.
constexpr int64_t kBlockRows = 512;

/// Entries that a query at each of these positions sees, itself among them.
std::vector<int32_t> seen_from(const EntrySegment& entries, std::span<const int32_t> rows) {
  std::vector<int32_t> seen;
  if (entries.form() == StorageForm::dense) {
    for (const int32_t position : rows) seen.push_back(position + 1);
    return seen;
  }
  const std::vector<int32_t> held = entries.positions(0);
  for (const int32_t position : rows) {
    seen.push_back(static_cast<int32_t>(std::ranges::upper_bound(held, position) - held.begin()));
  }
  return seen;
}

/// Appends entries with gaps between positions, which every head has.
void append_scattered(EntrySegment& entries, const AttentionRows& heads, std::span<const int32_t> positions) {
  const LayerShape& shape = entries.shape();
  for (int64_t head = 0; head < shape.kv_heads; ++head) {
    const int64_t offset = head * shape.head_dim;
    entries.append_to_head(head, positions, heads.keys + offset, heads.values + offset, heads.kv_stride);
  }
}

/// Writes fresh entries at their positions: over old ones, or behind them where the cache ends.
void store(LayerCache& cache, const AttentionRows& heads, std::span<const int32_t> positions) {
  for (size_t first = 0; first < positions.size();) {
    const int64_t held = cache.tail().entries(0);
    size_t end = first + 1;
    const auto follows = [&](size_t i) {
      return positions[i] == positions[i - 1] + 1 && (positions[i] < held) == (positions[first] < held);
    };
    while (end < positions.size() && follows(end)) ++end;
    const float* keys = heads.keys + static_cast<int64_t>(first) * heads.kv_stride;
    const float* values = heads.values + static_cast<int64_t>(first) * heads.kv_stride;
    const auto count = static_cast<int64_t>(end - first);
    if (positions[first] < held) {
      cache.tail().replace(positions[first], keys, values, count, heads.kv_stride);
    } else {
      cache.append(keys, values, count, heads.kv_stride, positions[first]);
    }
    first = end;
  }
}

void check(const Recomputation& what, const ModelConfig& config) {
  const auto n = static_cast<int64_t>(what.tokens.size());
  const auto fresh = std::ranges::lower_bound(what.positions, what.cache->length) - what.positions.begin();
  KVARENA_ASSERT(std::ranges::is_sorted(what.positions, std::less_equal{}) && !what.positions.empty() &&
                     what.positions.front() >= 0 && what.positions.back() == n - 1,
                 "positions ascend and end with the prompt");
  KVARENA_ASSERT(static_cast<int64_t>(what.positions.size()) - fresh == std::max<int64_t>(0, n - what.cache->length),
                 fmt::format("a prompt of {} whose cache holds {}", n, what.cache->length));
  KVARENA_ASSERT(what.pruner == nullptr || (what.cache->length == 0 && what.filter == nullptr),
                 "rows are pruned of a prompt that is computed from nothing");
  if (n > config.max_position) {
    fail({.place = "prompt",
          .found = fmt::format("{} tokens", n),
          .expected = fmt::format("at most {}, the model's window", config.max_position)});
  }
  for (const int32_t token : what.tokens) {
    if (token >= 0 && token < config.vocab_size) continue;
    fail({.place = "prompt",
          .found = fmt::format("token id {}", token),
          .expected = fmt::format("0 to {}", config.vocab_size - 1)});
  }
}

}  // namespace

/// Brings rows first .. first+count-1 of the whole stream to the front of the activations.
void Transformer::Impl::load_rows(int64_t first, int64_t count, std::span<const int32_t> rows) {
  const int64_t half = config.rotary_dim() / 2;
  const auto all = static_cast<int64_t>(rows.size());
  a.rows = count;
  std::copy_n(stream.at_least(0) + first * a.hidden, count * a.hidden, a.x.at_least(count * a.hidden));
  const float* table = stream_turn.at_least(0) + first * half;
  float* turn = a.turn.at_least(2 * count * half);
  std::copy_n(table, count * half, turn);
  std::copy_n(table + all * half, count * half, turn + count * half);
}

/// Queries and fresh entries of the rows at the front.
AttentionRows Transformer::Impl::block_heads(int64_t layer) {
  const LayerWeights& w = weights.layers[layer];
  const float* in = a.normalise_stream(w.attention_norm, a.rows);
  return std::visit([&](const auto& kind) { return attention_input(kind, config, in, a); }, w.attention);
}

void Transformer::Impl::attend_rows(int64_t layer, const AttentionRows& heads, std::span<const int32_t> rows,
                                    LayerCache& cache, RowPruner* pruner) {
  const LayerShape& shape = shapes[layer];
  const auto q_len = static_cast<int64_t>(rows.size());
  const std::vector<int32_t> seen = seen_from(cache.tail(), rows);
  std::vector<kernels::HeadRun> runs;
  for (int64_t head = 0; head < shape.kv_heads; ++head) runs.push_back(cache.tail().run(head));

  const int64_t states = q_len * shape.q_heads;
  kernels::AttentionState state{.out = attended.at_least(states * shape.head_dim),
                                .max = running.at_least(2 * states),
                                .sum = running.at_least(2 * states) + states};
  kernels::init_attention(state, q_len, shape.q_heads, shape.head_dim);
  const kernels::AttendProblem problem{.q = heads.q,
                                       .q_len = q_len,
                                       .q_token_stride = heads.q_stride,
                                       .q_head_stride = shape.head_dim,
                                       .runs = runs.data(),
                                       .dtype = shape.dtype,
                                       .seen = seen.data(),
                                       .window = shape.window,
                                       .state = state};
  kernels::attend({.problems = {&problem, 1},
                   .q_heads = shape.q_heads,
                   .kv_heads = shape.kv_heads,
                   .head_dim = shape.head_dim,
                   .scale = attention_scale(shape)});
  float* denominators = lse.at_least(states);
  kernels::finish_attention(state, q_len, shape.q_heads, shape.head_dim, denominators);
  if (pruner == nullptr) return;
  pruner->attended(layer, rows, cache,
                   {.q = heads.q, .q_len = q_len, .q_stride = heads.q_stride, .position = rows.front()}, denominators);
}

/// One layer for `rows`, which the stream holds in order.
void Transformer::Impl::recompute_layer(int64_t layer, std::span<const int32_t> rows, LayerCache& cache,
                                        RowPruner* pruner) {
  const auto all = static_cast<int64_t>(rows.size());
  for (int64_t first = 0; first < all; first += kBlockRows) {
    const int64_t count = std::min(kBlockRows, all - first);
    const std::span<const int32_t> block = rows.subspan(first, count);
    load_rows(first, count, rows);
    const AttentionRows heads = block_heads(layer);
    if (pruner != nullptr && cache.tail().entries(0) + count != block.back() + 1) {
      append_scattered(cache.tail(), heads, block);  // some row up to here was pruned
    } else {
      store(cache, heads, block);
    }
    attend_rows(layer, heads, block, cache, pruner);
    float* out = a.projected.at_least(count * a.hidden);
    std::visit([&](const auto& kind) { attention_output(kind, config, attended.at_least(0), out, a); },
               weights.layers[layer].attention);
    kernels::add_into(a.x.at_least(0), out, count * a.hidden);
    mlp_block(weights.layers[layer]);
    std::copy_n(a.x.at_least(0), count * a.hidden, stream.at_least(0) + first * a.hidden);
  }
}

/// Shows the filter the layer's fresh entries, stores them, and closes up the stream over the rows that go on.
void Transformer::Impl::filter_rows(int64_t layer, std::vector<int32_t>& rows, LayerCache& cache, RowFilter& filter) {
  const auto all = static_cast<int64_t>(rows.size());
  for (int64_t first = 0; first < all; first += kBlockRows) {
    const int64_t count = std::min(kBlockRows, all - first);
    const std::span<const int32_t> block = std::span<const int32_t>(rows).subspan(first, count);
    load_rows(first, count, rows);
    const AttentionRows heads = block_heads(layer);
    filter.see(layer, block, heads.keys, heads.values, heads.kv_stride, cache);
    store(cache, heads, block);
  }
  close_up(rows, filter.keep(layer, rows));
}

/// Takes the rows that do not go on out of the stream.
void Transformer::Impl::close_up(std::vector<int32_t>& rows, std::vector<int32_t> kept) {
  KVARENA_ASSERT(!kept.empty() && kept.back() == rows.back(), "the last token always goes on");
  if (kept.size() == rows.size()) return;
  const auto all = static_cast<int64_t>(rows.size());
  const int64_t half = config.rotary_dim() / 2;
  float* x = stream.at_least(0);
  std::vector<float> turn(static_cast<size_t>(2 * half) * kept.size());
  const float* table = stream_turn.at_least(0);
  size_t from = 0;
  for (size_t to = 0; to < kept.size(); ++to) {
    while (rows[from] < kept[to]) ++from;
    KVARENA_ASSERT(rows[from] == kept[to], fmt::format("position {} was not computed", kept[to]));
    std::copy_n(x + static_cast<int64_t>(from) * a.hidden, a.hidden, x + static_cast<int64_t>(to) * a.hidden);
    for (const int64_t part : {0, 1}) {
      std::copy_n(table + (part * all + static_cast<int64_t>(from)) * half, half,
                  turn.data() + (part * static_cast<int64_t>(kept.size()) + static_cast<int64_t>(to)) * half);
    }
  }
  std::ranges::copy(turn, stream_turn.at_least(0));
  rows = std::move(kept);
}

Recomputed Transformer::recompute(const Recomputation& what) {
  Impl& m = *impl_;
  check(what, m.config);
  std::vector<int32_t> rows(what.positions.begin(), what.positions.end());
  const auto all = static_cast<int64_t>(rows.size());
  const int64_t hidden = m.a.hidden;
  std::vector<int32_t> tokens;
  for (const int32_t position : rows) tokens.push_back(what.tokens[position]);
  read_rows(m.weights.embedding, tokens, m.stream.at_least(all * hidden));
  m.positions = rows;
  m.lengths.assign(rows.size(), static_cast<int64_t>(what.tokens.size()));
  const int64_t half = m.config.rotary_dim() / 2;
  float* cos = m.stream_turn.at_least(2 * all * half);
  m.fill_rotations(cos, cos + all * half);

  Recomputed result;
  for (int64_t layer = 0; layer < m.config.layers; ++layer) {
    LayerCache& cache = what.cache->layers[layer];
    if (what.filter != nullptr && what.filter->judges(layer)) m.filter_rows(layer, rows, cache, *what.filter);
    m.recompute_layer(layer, rows, cache, what.pruner);
    result.rows.push_back(static_cast<int64_t>(rows.size()));
    if (what.pruner != nullptr && layer + 1 < m.config.layers) m.close_up(rows, what.pruner->keep(layer, rows));
  }
  what.cache->length = static_cast<int64_t>(what.tokens.size());
  what.cache->prompt_length = what.cache->length;

  m.a.rows = 1;
  std::copy_n(m.stream.at_least(0) + (static_cast<int64_t>(rows.size()) - 1) * hidden, hidden, m.a.x.at_least(hidden));
  result.logits = m.head(1);
  result.positions = std::move(rows);
  return result;
}

}  // namespace kvarena
