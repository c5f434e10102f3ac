#include "harness/tiers/slot_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "harness/cache/indexed_segment.h"
#include "harness/core/error.h"

namespace kvarena::tiers {

SlotCache::SlotCache(const LayerShape& shape, const LedgerPtr& ledger, HierarchyPtr tiers, const Options& options)
    : shape_(shape),
      ledger_(ledger),
      options_(options),
      tiers_(std::move(tiers)),
      store_(shape, ledger, tiers_, options.tier),
      slots_(shape, ledger) {}

void SlotCache::offload(EntrySegment& tail) {
  const int64_t n = tail.entries(0);
  store_.append(tail, 0, n);
  tail.drop_front(n);
}

std::vector<int32_t> SlotCache::wanted_of(int64_t kv_head) const {
  const auto lists = static_cast<int64_t>(wanted_.size()) / shape_.kv_heads;  // of each kv head
  std::vector<int32_t> all = wanted_[static_cast<size_t>(kv_head * lists)];
  for (int64_t i = 1; i < lists; ++i) {
    const std::vector<int32_t>& more = wanted_[static_cast<size_t>(kv_head * lists + i)];
    std::vector<int32_t> both;
    std::ranges::set_union(all, more, std::back_inserter(both));
    all = std::move(both);
  }
  return all;
}

void SlotCache::prefetch(Lists wanted) {
  wanted_ = std::move(wanted);
  missing_.assign(static_cast<size_t>(shape_.kv_heads), {});
  free_.assign(static_cast<size_t>(shape_.kv_heads), {});
  int64_t count = 0;
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    const std::vector<int32_t> now = wanted_of(h);
    std::vector<int32_t> held = slots_.positions(h);
    for (auto slot = static_cast<int32_t>(held.size()) - 1; slot >= 0; --slot) {
      if (!options_.elastic || !std::ranges::binary_search(now, held[slot])) free_[h].push_back(slot);
    }
    if (!options_.elastic) held.clear();
    std::ranges::sort(held);
    std::ranges::set_difference(now, held, std::back_inserter(missing_[h]));
    if (!missing_[h].empty() && missing_[h].back() == sent()) missing_[h].pop_back();  // comes with the tail
    count += static_cast<int64_t>(missing_[h].size());
  }
  if (count == 0) return;
  rows_ = Buffer(ledger_, Tier::device, count * store_.row_bytes());
  transfer_ = store_.load(missing_, rows_.data());
}

void SlotCache::fill(int64_t kv_head, const EntrySegment& from, int64_t from_entry) {
  std::vector<int32_t>& free = free_[kv_head];
  int64_t slot = slots_.entries(kv_head);
  if (!free.empty()) {
    slot = free.back();
    free.pop_back();
  }
  slots_.replace(kv_head, slot, from, from_entry);
}

std::unique_ptr<Segment> SlotCache::arrive(const EntrySegment& tail) {
  KVARENA_ASSERT(tail.entries(0) == 1 && tail.position(0, 0) == sent(),
                 fmt::format("a tail of {} entries behind {}", tail.entries(0), sent()));
  transfer_.wait();
  loaded_bytes_ = rows_.bytes();
  link_seconds_ = loaded_bytes_ > 0 ? transfer_.link_seconds() : 0;
  waited_seconds_ = transfer_.waited_seconds();
  const std::byte* rows = rows_.data();
  Lists places;  // of the wanted entries, in their order
  std::vector<std::unordered_map<int32_t, int32_t>> slot_of(static_cast<size_t>(shape_.kv_heads));
  EntrySegment arrived(shape_, ledger_);
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    append_rows(shape_, rows, missing_[h], h, arrived);
    rows += static_cast<int64_t>(missing_[h].size()) * store_.row_bytes();
    for (size_t i = 0; i < missing_[h].size(); ++i) fill(h, arrived, static_cast<int64_t>(i));
    fill(h, tail, 0);
    const std::vector<int32_t> held = slots_.positions(h);
    for (size_t slot = 0; slot < held.size(); ++slot) slot_of[h][held[slot]] = static_cast<int32_t>(slot);
  }
  transfer_ = {};
  rows_ = {};
  const auto lists = static_cast<int64_t>(wanted_.size()) / shape_.kv_heads;
  for (size_t list = 0; list < wanted_.size(); ++list) {
    const auto& known = slot_of[list / static_cast<size_t>(lists)];
    std::vector<int32_t>& own = places.emplace_back();
    for (const int32_t position : wanted_[list]) own.push_back(known.at(position));
  }
  return std::make_unique<IndexedSegment>(slots_, places, ledger_);
}

std::unique_ptr<LayerIndex> SlotCache::clone(const LedgerPtr& ledger) const {
  auto copy = std::make_unique<SlotCache>(shape_, ledger, tiers_, options_);
  copy->store_ = std::move(*store_.clone(ledger));
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    for (int64_t slot = 0; slot < slots_.entries(h); ++slot) copy->slots_.replace(h, slot, slots_, slot);
  }
  return copy;
}

}  // namespace kvarena::tiers
