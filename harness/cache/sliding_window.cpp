#include "harness/cache/sliding_window.h"

#include <algorithm>

#include "kernels/attention/attention.h"

namespace kvarena {

int64_t oldest_seen(int64_t window, bool chunked, int64_t position) {
  if (window == 0) return 0;
  if (chunked) return position - position % window;
  return std::max<int64_t>(0, position - window + 1);
}

void release_unseen(LayerCache& layer, int64_t length) {
  const EntrySegment& tail = layer.tail();
  const bool exact = layer.segments().size() == 1 && !layer.index && !tail.ragged() && tail.score_width() == 0;
  if (layer.shape().window == 0 || !exact || tail.entries(0) == 0) return;
  const int64_t unseen = oldest_seen(layer.shape().window, layer.shape().chunked, length) - tail.position(0, 0);
  const int64_t whole = std::min(unseen, tail.entries(0)) / kernels::kChunk * kernels::kChunk;
  if (whole > 0) layer.tail().drop_front(whole);
}

void release_unseen(KvCache& cache) {
  for (LayerCache& layer : cache.layers) release_unseen(layer, cache.length);
}

int64_t sliding_bytes(const KvCache& cache) {
  int64_t total = 0;
  for (const LayerCache& layer : cache.layers) total += layer.shape().window > 0 ? layer.bytes() : 0;
  return total;
}

}  // namespace kvarena
