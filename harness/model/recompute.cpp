// Passes over a prompt of which only some tokens are computed.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "harness/core/error.h"
#include "harness/model/attend_sequence.h"
#include "harness/model/pass_checks.h"
#include "harness/model/row_stream.h"
#include "harness/model/transformer_impl.h"

namespace kvarena {
namespace {

/// Rows that pass a layer at once, which bounds activations as chunks of a prefill do. An earlier row never sees a
/// later one, so results do not depend on it.
constexpr size_t kBlockRows = 512;

/// Appends entries with gaps between positions, which every head has.
void append_scattered(EntrySegment& entries, const QkvRows& heads, std::span<const int32_t> positions) {
  const LayerShape& shape = entries.shape();
  for (int64_t head = 0; head < shape.kv_heads; ++head) {
    const int64_t offset = head * shape.head_dim;
    entries.append_to_head(head, positions, heads.keys + offset, heads.values + offset, heads.kv_stride);
  }
}

void check(const Recomputation& what, const ModelConfig& config) {
  const auto n = static_cast<int64_t>(what.tokens.size());
  check_positions(what.positions, what.cache->length);
  KVARENA_ASSERT(what.cache->states.empty(), "states take tokens in their order alone");
  KVARENA_ASSERT(what.positions.back() < n && what.cache->length <= n,
                 fmt::format("a prompt of {} whose cache holds {}", n, what.cache->length));
  KVARENA_ASSERT(what.pruner == nullptr || (what.cache->length == 0 && what.filter == nullptr),
                 "rows are pruned of a prompt that is computed from nothing");
  check_window(config, n);
  check_tokens(config, what.tokens);
}

/// Calls work(first, block) for the stream's rows, some at a time.
template <typename Work>
void for_blocks(std::span<const int32_t> rows, const Work& work) {
  for (size_t first = 0; first < rows.size(); first += kBlockRows) {
    work(static_cast<int64_t>(first), rows.subspan(first, std::min<size_t>(kBlockRows, rows.size() - first)));
  }
}

/// One layer for `rows`, which the stream holds in order. Rows that a pruner took out have no entries, so those of the
/// others close up.
void pass_layer(RowStream& stream, int64_t layer, std::span<const int32_t> rows, LayerCache& cache, RowPruner* pruner) {
  for_blocks(rows, [&](int64_t first, std::span<const int32_t> block) {
    std::vector<int32_t> places(block.begin(), block.end());
    if (pruner != nullptr) std::iota(places.begin(), places.end(), static_cast<int32_t>(cache.tail().entries(0)));
    const auto take = [&](const QkvRows& fresh) {
      if (places.back() != block.back()) return append_scattered(cache.tail(), fresh, block);
      store_at(cache, fresh, block);
    };
    RowStream::Watch watch;
    if (pruner != nullptr) {
      watch = [&](const QkvRows& from, const float* lse) {
        const LayerQueries queries{
            .q = from.q, .q_len = std::ssize(block), .q_stride = from.q_stride, .position = block.front()};
        pruner->attended(layer, block, cache, queries, lse);
      };
    }
    stream.pass({.layer = layer, .first = first, .places = places}, take, watch);
  });
}

/// Takes the rows that do not go on out of the stream.
void close_up(RowStream& stream, std::vector<int32_t>& rows, std::vector<int32_t> kept) {
  KVARENA_ASSERT(!kept.empty() && kept.back() == rows.back(), "the last token always goes on");
  if (kept.size() == rows.size()) return;
  std::vector<int32_t> numbers;
  auto row = rows.begin();
  for (const int32_t position : kept) {
    row = std::lower_bound(row, rows.end(), position);
    KVARENA_ASSERT(row != rows.end() && *row == position, fmt::format("position {} was not computed", position));
    numbers.push_back(static_cast<int32_t>(row - rows.begin()));
  }
  stream.keep(numbers);
  rows = std::move(kept);
}

/// Shows the filter the layer's fresh entries, stores them, and closes up the stream over the rows that go on.
void filter_rows(RowStream& stream, int64_t layer, std::vector<int32_t>& rows, LayerCache& cache, RowFilter& filter) {
  for_blocks(rows, [&](int64_t first, std::span<const int32_t> block) {
    const QkvRows fresh = stream.entries({.layer = layer, .first = first, .places = block});
    filter.see(layer, block, fresh.keys, fresh.values, fresh.kv_stride, cache);
    store_at(cache, fresh, block);
  });
  close_up(stream, rows, filter.keep(layer, rows));
}

}  // namespace

Recomputed Transformer::recompute(const Recomputation& what) {
  Impl& m = *impl_;
  check(what, m.config);
  KvCache& cache = *what.cache;
  cache.prompt_length = std::ssize(what.tokens);
  const bool by_layer = what.pruner != nullptr;  // rows or entries leave, so no copy would be like the cache
  const std::unique_ptr<RowStream> stream =
      m.device ? m.device->rows_of(cache, cache.prompt_length, by_layer) : m.rows_of(cache);
  std::vector<int32_t> rows(what.positions.begin(), what.positions.end()), tokens;
  for (const int32_t position : rows) tokens.push_back(what.tokens[static_cast<size_t>(position)]);
  stream->load(tokens, rows);
  Recomputed result;
  for (int64_t layer = 0; layer < m.config.layers; ++layer) {
    LayerCache& entries = cache.layers[layer];
    if (what.filter != nullptr && what.filter->judges(layer)) filter_rows(*stream, layer, rows, entries, *what.filter);
    pass_layer(*stream, layer, rows, entries, what.pruner);
    result.rows.push_back(std::ssize(rows));
    if (what.pruner != nullptr && layer + 1 < m.config.layers) close_up(*stream, rows, what.pruner->keep(layer, rows));
  }
  cache.length = std::max<int64_t>(cache.length, what.positions.back() + 1);
  result.logits = stream->finish();
  result.positions = std::move(rows);
  return result;
}

std::span<const float> Transformer::Impl::rows_on_device(const SequencePass& pass) {
  KvCache& cache = *pass.cache;
  const int64_t tokens = std::max(cache.prompt_length, length_after(pass));
  const std::unique_ptr<RowStream> stream = device->rows_of(cache, tokens, /*by_layer=*/false);
  stream->load(pass.tokens, pass.positions);
  for (int64_t layer = 0; layer < config.layers; ++layer)
    pass_layer(*stream, layer, pass.positions, cache.layers[layer], nullptr);
  cache.length = length_after(pass);
  return stream->finish();
}

}  // namespace kvarena
