#include "harness/engine/stored/cache_chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "harness/core/error.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/stored/saved_entries.h"
#include "kernels/common/parallel.h"

namespace kvarena::stored {
namespace {

/// Layers first .. first+count-1, cut in chunks: those of tokens that are not needed have no importance.
void add_chunks(ChunkedContext& to, int64_t first, int64_t count, int64_t tokens, int64_t chunk_tokens,
                std::span<const int32_t> needed) {
  auto next = needed.begin();
  for (int64_t begin = 0; begin < tokens; begin += chunk_tokens) {
    const int64_t held = std::min(chunk_tokens, tokens - begin);
    const auto end = std::lower_bound(next, needed.end(), begin + held);
    to.chunks.push_back({.first_layer = first,
                         .layers = count,
                         .first_token = begin,
                         .tokens = held,
                         .importance = static_cast<double>(end - next) / static_cast<double>(held)});
    next = end;
  }
}

/// All tokens of the chunks that requests read.
std::vector<int32_t> tokens_read(std::span<const CacheChunk> chunks) {
  std::vector<int32_t> tokens;
  for (const CacheChunk& chunk : chunks) {
    if (chunk.importance == 0) continue;
    const auto old = static_cast<std::ptrdiff_t>(tokens.size());
    tokens.resize(tokens.size() + static_cast<size_t>(chunk.tokens));
    std::iota(tokens.begin() + old, tokens.end(), static_cast<int32_t>(chunk.first_token));
  }
  return tokens;
}

/// Indices of the entries whose positions are among `attended`.
std::vector<int32_t> kept_of(std::span<const int32_t> positions, std::span<const int32_t> attended) {
  std::vector<int32_t> kept;
  for (size_t i = 0; i < positions.size(); ++i) {
    if (std::ranges::binary_search(attended, positions[i])) kept.push_back(static_cast<int32_t>(i));
  }
  return kept;
}

}  // namespace

ChunkedContext divide(const Prefill& prompt, const Chunking& chunking) {
  KvCache cache = prompt.cache.clone();
  Activity activity;
  const std::vector<LayerContext> layers = contexts_of(cache, prompt, activity);
  const auto all = std::ssize(layers);
  const int64_t together = std::clamp<int64_t>(chunking.chunk_layers(all), 1, all);
  ChunkedContext divided;
  for (int64_t first = 0; first < all; first += together) {
    const int64_t count = std::min(together, all - first);
    const std::vector<int32_t> needed =
        chunking.needed(std::span(layers).subspan(first, count), std::span(prompt.observations).subspan(first, count));
    const size_t before = divided.chunks.size();
    add_chunks(divided, first, count, std::ssize(prompt.tokens), chunking.chunk_tokens(), needed);
    const std::vector<int32_t> attended =
        chunking.attends_to_others() ? tokens_read(std::span(divided.chunks).subspan(before)) : needed;
    divided.attended.insert(divided.attended.end(), static_cast<size_t>(count), attended);
  }
  return divided;
}

std::vector<std::byte> store_chunk(const KvCache& cache, const CacheChunk& chunk) {
  CacheWriter to;
  for (int64_t layer = chunk.first_layer; layer < chunk.first_layer + chunk.layers; ++layer) {
    const EntrySegment& tail = cache.layers[static_cast<size_t>(layer)].tail();
    KVARENA_ASSERT(!tail.ragged() && tail.position(0, 0) == 0, "chunks are of a full cache");
    put_dense(to, tail, chunk.first_token, chunk.tokens);
  }
  return to.take();
}

ChunkedCache::ChunkedCache(const Transformer& model, const ChunkedContext& context)
    : context_(&context), cache_(model.make_cache()), layers_(cache_.layers.size()) {
  for (const CacheChunk& chunk : context.chunks) {
    if (chunk.importance == 0) continue;
    for (int64_t i = 0; i < chunk.layers; ++i)
      layers_[static_cast<size_t>(chunk.first_layer + i)].entries += chunk.tokens;
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    const EntrySegment& tail = cache_.layers[i].tail();
    const int64_t bytes = tail.shape().kv_heads * tail.saved_bytes(layers_[i].entries);
    layers_[i].bytes = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes));
  }
}

void ChunkedCache::add(const CacheChunk& chunk, std::span<const std::byte> bytes) {
  CacheReader from(bytes);
  for (int64_t i = chunk.first_layer; i < chunk.first_layer + chunk.layers; ++i) {
    EntrySegment& tail = cache_.layers[static_cast<size_t>(i)].tail();
    Layer& layer = layers_[static_cast<size_t>(i)];
    const FoundEntries found = find_dense(from, tail);
    const int64_t count = found.heads.front().count, held = std::ssize(layer.positions);
    if (count != chunk.tokens || held + count > layer.entries) {
      CacheReader::damaged(fmt::format("{} entries", count), fmt::format("{}", chunk.tokens));
    }
    const int64_t side = tail.saved_bytes(layer.entries) / 2, row = tail.saved_bytes(1) / 2;
    std::byte* to = layer.bytes.get() + held * row;
    for (const EntrySegment::SavedHead& head : found.heads) {
      const auto half = static_cast<size_t>(count * row);
      std::memcpy(to, head.bytes.data(), half);                // keys
      std::memcpy(to + side, head.bytes.data() + half, half);  // values
      to += 2 * side;
    }
    layer.positions.resize(static_cast<size_t>(held + count));
    std::iota(layer.positions.begin() + held, layer.positions.end(), static_cast<int32_t>(chunk.first_token));
  }
  if (!from.empty()) CacheReader::damaged("more bytes", "the end of a chunk");
}

KvCache ChunkedCache::finish(int64_t tokens) {
  kernels::parallel_for(std::ssize(layers_), [&](int64_t i) {
    Layer& layer = layers_[static_cast<size_t>(i)];
    EntrySegment& tail = cache_.layers[static_cast<size_t>(i)].tail();
    const auto heads = static_cast<size_t>(tail.shape().kv_heads);
    const auto bytes = static_cast<size_t>(tail.saved_bytes(layer.entries));
    const bool gaps = layer.positions.back() - layer.positions.front() + 1 != layer.entries;
    std::vector<EntrySegment::SavedHead> saved(heads);
    for (size_t head = 0; head < heads; ++head) {
      saved[head].count = layer.entries;
      saved[head].bytes = {layer.bytes.get() + head * bytes, bytes};
      if (gaps) saved[head].positions = layer.positions;
    }
    tail.append_saved(saved, gaps ? std::nullopt : std::optional<int64_t>(layer.positions.front()));
    layer.bytes.reset();
    const std::vector<int32_t> kept = kept_of(layer.positions, context_->attended[static_cast<size_t>(i)]);
    if (std::ssize(kept) < layer.entries) tail.keep(std::vector(heads, kept));
  });
  cache_.length = cache_.prompt_length = tokens;
  return std::move(cache_);
}

}  // namespace kvarena::stored
