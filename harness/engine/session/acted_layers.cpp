#include "harness/engine/session/acted_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "harness/cache/sliding_window.h"
#include "harness/core/error.h"

namespace kvarena {
namespace {

/// The last `count` columns of rows of `columns` each.
std::vector<float> last_columns(const std::vector<float>& all, int64_t columns, int64_t count) {
  std::vector<float> last;
  for (auto row = all.begin(); row != all.end(); row += columns) {
    last.insert(last.end(), row + columns - count, row + columns);
  }
  return last;
}

/// The last `count` of `rows` rows.
std::vector<float> last_rows(const std::vector<float>& all, int64_t rows, int64_t count) {
  const int64_t left = rows == 0 ? 0 : std::ssize(all) / rows * count;
  return {all.end() - left, all.end()};
}

/// Observations of the prompt's last `count` entries.
LayerObservations newest_of(const LayerObservations& seen, int64_t count) {
  const int64_t n = seen.entries;
  KVARENA_ASSERT(n >= count, fmt::format("a prompt of {} entries that was observed without this layer", count));
  LayerObservations newest{.entries = count,
                           .prompt_attention = last_columns(seen.prompt_attention, n, count),
                           .window = std::min(seen.window, count),
                           .hidden = last_rows(seen.hidden, n, count),
                           .output_projection = seen.output_projection,
                           .future_attention = last_columns(seen.future_attention, n, count),
                           .query_moments = seen.query_moments,
                           .residual = last_rows(seen.residual, n, count),
                           .restorations = seen.restorations};
  newest.window_queries = last_rows(seen.window_queries, seen.window, newest.window);
  newest.window_lse = last_rows(seen.window_lse, seen.window, newest.window);
  for (const ReconstructionScores& scores : seen.reconstructions) {
    newest.reconstructions.push_back({.of = scores.of,
                                      .prefix = std::max<int64_t>(0, scores.prefix - (n - count)),
                                      .scores = last_columns(scores.scores, n, count)});
  }
  for (const GatheredStatistic& gathered : seen.statistics) {
    newest.statistics.push_back(
        {.id = gathered.id, .width = gathered.width, .sums = last_columns(gathered.sums, n, count)});
  }
  return newest;
}

/// Leaves of a layer's entries those of its prompt's part.
void keep_prompt(LayerContext& layer) {
  EntrySegment& tail = layer.cache.tail();
  const int64_t unseen = tail.entries(0) - layer.prompt_tokens;
  KVARENA_ASSERT(unseen >= 0, fmt::format("{} entries of {} tokens", tail.entries(0), layer.prompt_tokens));
  if (unseen > 0) tail.drop_front(unseen);
}

/// Compresses layers of one kind.
void compress_kind(const Method& method, std::vector<LayerContext> layers, const Prefill& prompt) {
  if (layers.empty()) return;
  if (std::ssize(layers) == layers.front().layers && layers.front().prompt_begin == 0) {
    return method.compress_all(layers, prompt.observations);
  }
  if (method.compresses_by_layer()) {
    for (const LayerContext& layer : layers) compress_layer(method, layer, prompt.observations[layer.layer]);
    return;
  }
  std::vector<LayerObservations> seen;
  for (LayerContext& layer : layers) {
    keep_prompt(layer);
    seen.push_back(newest_of(prompt.observations[layer.layer], layer.prompt_tokens));
  }
  method.compress_all(layers, seen);
}

}  // namespace

ActedLayers::ActedLayers(const Method& method, const KvCache& cache) : held_(cache.layers.size()) {
  for (const int64_t layer : method.layers().of(cache)) {
    const bool sliding = method.chooses_layers() && cache.layers[layer].shape().window > 0;
    (sliding ? sliding_ : full_).push_back(layer);
    held_[layer] = true;
  }
}

LayerContext ActedLayers::context(KvCache& cache, int64_t layer, int64_t prompt_tokens, const ModelFacts* model,
                                  Activity& activity) const {
  LayerCache& own = cache.layers[layer];
  const bool sliding = std::ranges::binary_search(sliding_, layer);
  const int64_t begin = sliding ? oldest_seen(own.shape().window, own.shape().chunked, prompt_tokens) : 0;
  return {.layer = layer,
          .layers = std::ssize(cache.layers),
          .cache = own,
          .activity = activity,
          .prompt_tokens = prompt_tokens - begin,
          .model = model,
          .prompt = {},
          .request = &cache,
          .prompt_begin = begin,
          .peers = sliding ? sliding_ : full_,
          .sharing = std::ssize(full_) + std::ssize(sliding_)};
}

std::vector<LayerContext> ActedLayers::contexts(KvCache& cache, int64_t prompt_tokens, const ModelFacts* model,
                                                Activity& activity) const {
  std::vector<LayerContext> all;
  for (int64_t layer = 0; layer < std::ssize(cache.layers); ++layer) {
    if (holds(layer)) all.push_back(context(cache, layer, prompt_tokens, model, activity));
  }
  return all;
}

void compress_layer(const Method& method, LayerContext layer, const LayerObservations& seen) {
  if (layer.prompt_begin == 0) return method.compress_all({&layer, 1}, {&seen, 1});
  keep_prompt(layer);
  const LayerObservations newest = newest_of(seen, layer.prompt_tokens);
  method.compress_all({&layer, 1}, {&newest, 1});
}

void compress_layers(const Method& method, KvCache& cache, const Prefill& prompt, Activity& activity) {
  const ActedLayers acted(method, cache);
  const std::span<const int32_t> tokens = prompt.tokens;
  const auto handed = [&](const std::vector<int64_t>& kind) {
    std::vector<LayerContext> layers;
    for (const int64_t layer : kind) {
      layers.push_back(acted.context(cache, layer, std::ssize(tokens), prompt.model.get(), activity));
      layers.back().prompt = tokens.subspan(static_cast<size_t>(layers.back().prompt_begin));
    }
    return layers;
  };
  compress_kind(method, handed(acted.full()), prompt);
  compress_kind(method, handed(acted.sliding()), prompt);
  release_unseen(cache);
}

}  // namespace kvarena
