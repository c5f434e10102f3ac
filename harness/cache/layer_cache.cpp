#include "harness/cache/layer_cache.h"

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena {

std::unique_ptr<LayerIndex> clone_index(const std::unique_ptr<LayerIndex>& index, const LedgerPtr& ledger) {
  if (!index) return nullptr;
  std::unique_ptr<LayerIndex> copy = index->clone(ledger);
  copy->entries = index->entries;
  return copy;
}

LayerCache::LayerCache(const LayerShape& shape, LedgerPtr ledger) : shape_(shape), ledger_(std::move(ledger)) {
  segments_.push_back(std::make_unique<EntrySegment>(shape_, ledger_));
}

EntrySegment& LayerCache::tail() { return static_cast<EntrySegment&>(*segments_.back()); }

const EntrySegment& LayerCache::tail() const { return static_cast<const EntrySegment&>(*segments_.back()); }

void LayerCache::append(const float* keys, const float* values, int64_t n, int64_t stride, int64_t position) {
  tail().append(keys, values, n, stride, position);
}

void LayerCache::plan(const LayerQueries& queries, AttentionPlan& to) const {
  for (const auto& segment : segments_) {
    if (segment != segments_.back()) segment->plan(queries, to);
  }
  tail().plan_newest(queries, to, shape_.window);
}

AttentionPlan LayerCache::plan(const LayerQueries& queries) const {
  AttentionPlan plan{.queries = queries, .items = {}};
  if (view) {
    view->plan(queries, plan);
  } else {
    this->plan(queries, plan);
  }
  return plan;
}

int64_t LayerCache::entries(int64_t kv_head) const {
  int64_t total = 0;
  for (const auto& segment : segments_) total += segment->entries(kv_head);
  return total;
}

int64_t LayerCache::bytes() const {
  int64_t total = index ? index->bytes() : 0;
  for (const auto& segment : segments_) total += segment->bytes();
  return total;
}

void LayerCache::insert_before_tail(std::unique_ptr<Segment> segment) {
  segments_.insert(segments_.end() - 1, std::move(segment));
}

void LayerCache::insert_packed(std::unique_ptr<PackedSegment> segment) {
  packed_.push_back(segment.get());
  insert_before_tail(std::move(segment));
}

void LayerCache::keep_segments(std::span<Segment* const> kept) {
  const auto goes = [&](const Segment* segment) { return std::ranges::find(kept, segment) == kept.end(); };
  std::erase_if(packed_, goes);
  std::erase_if(segments_, [&](const std::unique_ptr<Segment>& segment) { return goes(segment.get()); });
}

LayerCache LayerCache::clone(const LedgerPtr& ledger) const {
  LayerCache copy(shape_, ledger);
  copy.segments_.clear();
  for (const auto& segment : segments_) {
    copy.segments_.push_back(segment->clone(ledger));
    if (std::ranges::find(packed_, segment.get()) != packed_.end())
      copy.packed_.push_back(static_cast<PackedSegment*>(copy.segments_.back().get()));
  }
  copy.index = clone_index(index, ledger);
  return copy;
}

KvCache::KvCache(std::span<const LayerShape> shapes, std::span<const RecurrentShape> recurrent)
    : ledger(std::make_shared<MemoryLedger>()) {
  for (const LayerShape& shape : shapes) layers.emplace_back(shape, ledger);
  for (const RecurrentShape& shape : recurrent) states.emplace_back(shape, ledger);
}

KvCache::KvCache(int64_t layer_count, const LayerShape& shape)
    : KvCache(std::vector<LayerShape>(static_cast<size_t>(layer_count), shape)) {}

int64_t KvCache::bytes() const {
  int64_t total = state_bytes() + (index ? index->bytes() : 0);
  for (const LayerCache& layer : layers) total += layer.bytes();
  return total;
}

int64_t KvCache::state_bytes() const {
  int64_t total = 0;
  for (const RecurrentState& state : states) total += state.bytes();
  return total;
}

KvCache KvCache::clone() const {
  KvCache copy;
  copy.ledger = std::make_shared<MemoryLedger>();
  copy.length = length;
  copy.prompt_length = prompt_length;
  for (const LayerCache& layer : layers) copy.layers.push_back(layer.clone(copy.ledger));
  copy.take_states(*this);
  copy.index = clone_index(index, copy.ledger);
  if (mirror) copy.mirror = mirror->for_clone(*this, copy);
  return copy;
}

void KvCache::own_tails() {
  for (LayerCache& layer : layers) layer.tail().own();
}

void KvCache::truncate(int64_t new_length) {
  for (LayerCache& layer : layers) {
    EntrySegment& tail = layer.tail();
    if (tail.entries(0) > 0) tail.truncate(std::max<int64_t>(0, new_length - tail.position(0, 0)));
    if (layer.index) layer.index->entries = std::min(layer.index->entries, tail.entries(0));
  }
  length = new_length;
  follow_length();
}

void KvCache::hold_states() {
  for (RecurrentState& state : states) state.hold();
}

void KvCache::release_states() {
  for (RecurrentState& state : states) state.release();
}

void KvCache::follow_length() {
  for (RecurrentState& state : states) state.rewind(std::min(state.tokens(), length));
}

void KvCache::take_states(const KvCache& from) {
  KVARENA_ASSERT(length == from.length, "states belong to all tokens before them");
  states.clear();
  for (const RecurrentState& state : from.states) states.push_back(state.clone(ledger));
}

}  // namespace kvarena
