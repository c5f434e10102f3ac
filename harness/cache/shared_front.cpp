#include "harness/cache/shared_front.h"

#include <algorithm>
#include <numeric>

namespace kvarena {
namespace {

std::vector<int32_t> run_of(int64_t first, int64_t end) {
  std::vector<int32_t> entries(static_cast<size_t>(end - first));
  std::iota(entries.begin(), entries.end(), static_cast<int32_t>(first));
  return entries;
}

int64_t whole_chunks(int64_t entries) { return entries / kernels::kChunk * kernels::kChunk; }

/// Whether a head of the tail has a chunk of entries that neither leave one by one nor have numbers of their own.
bool has_lasting_chunks(const LayerCache& layer) {
  const EntrySegment& tail = layer.tail();
  int64_t most = 0;
  for (int64_t head = 0; head < layer.shape().kv_heads; ++head) most = std::max(most, tail.entries(head));
  return most >= kernels::kChunk && layer.shape().window == 0 && tail.score_width() == 0;
}

/// Moves the first whole chunks of heads of different lengths.
void set_ragged_front_apart(LayerCache& layer) {
  EntrySegment& tail = layer.tail();
  std::vector<std::vector<int32_t>> first, rest;
  for (int64_t head = 0; head < tail.shape().kv_heads; ++head) {
    const int64_t count = whole_chunks(tail.entries(head));
    first.push_back(run_of(0, count));
    rest.push_back(run_of(count, tail.entries(head)));
  }
  std::unique_ptr<Segment> front = tail.clone(layer.ledger());
  static_cast<EntrySegment&>(*front).keep(first);
  tail.keep(rest);
  layer.insert_before_tail(std::move(front));
}

}  // namespace

void set_front_apart(LayerCache& layer, int64_t count) {
  auto front = std::make_unique<EntrySegment>(layer.shape(), layer.ledger());
  front->append_entries(layer.tail(), 0, count);
  layer.tail().drop_front(count);
  layer.insert_before_tail(std::move(front));
}

void share_front(KvCache& cache) {
  for (LayerCache& layer : cache.layers) {
    if (!has_lasting_chunks(layer)) continue;
    if (layer.tail().ragged()) {
      set_ragged_front_apart(layer);
    } else {
      set_front_apart(layer, whole_chunks(layer.tail().entries(0)));
    }
  }
}

LayerCache growing_copy(const LayerCache& layer, const LedgerPtr& ledger) {
  const EntrySegment& tail = layer.tail();
  if (!has_lasting_chunks(layer) || tail.ragged() || layer.segments().size() > 1) return layer.clone(ledger);
  const int64_t count = whole_chunks(tail.entries(0));
  LayerCache copy(layer.shape(), ledger);
  copy.insert_before_tail(tail.front(count, ledger));
  copy.tail().append_entries(tail, count, tail.entries(0) - count);
  return copy;
}

}  // namespace kvarena
