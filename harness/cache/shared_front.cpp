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

/// The first whole chunks of every head; the tail keeps the rest.
std::unique_ptr<EntrySegment> take_front(EntrySegment& tail, const LedgerPtr& ledger) {
  auto front = std::make_unique<EntrySegment>(tail.shape(), ledger);
  if (!tail.ragged()) {
    const int64_t count = tail.entries(0) / kernels::kChunk * kernels::kChunk;
    front->append_entries(tail, 0, count);
    tail.drop_front(count);
    return front;
  }
  std::vector<std::vector<int32_t>> first, rest;
  for (int64_t head = 0; head < tail.shape().kv_heads; ++head) {
    const int64_t count = tail.entries(head) / kernels::kChunk * kernels::kChunk;
    first.push_back(run_of(0, count));
    rest.push_back(run_of(count, tail.entries(head)));
  }
  *front = std::move(static_cast<EntrySegment&>(*tail.clone(ledger)));
  front->keep(first);
  tail.keep(rest);
  return front;
}

}  // namespace

void share_front(KvCache& cache) {
  for (LayerCache& layer : cache.layers) {
    EntrySegment& tail = layer.tail();
    int64_t most = 0;
    for (int64_t head = 0; head < layer.shape().kv_heads; ++head) most = std::max(most, tail.entries(head));
    if (most < kernels::kChunk || layer.shape().window > 0 || tail.score_width() > 0) continue;
    layer.insert_before_tail(take_front(tail, layer.ledger()));
  }
}

}  // namespace kvarena
