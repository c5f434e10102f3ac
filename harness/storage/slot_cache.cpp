#include "harness/storage/slot_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "harness/cache/indexed_segment.h"
#include "harness/core/error.h"

namespace kvarena::storage {
namespace {

/// Index of a position in an ascending list.
std::optional<int64_t> place_in(const std::vector<int32_t>& positions, int32_t position) {
  const auto found = std::ranges::lower_bound(positions, position);
  if (found == positions.end() || *found != position) return std::nullopt;
  return found - positions.begin();
}

}  // namespace

SlotCache::SlotCache(const LayerShape& shape, const LedgerPtr& ledger, HierarchyPtr tiers, const Options& options)
    : shape_(shape),
      ledger_(ledger),
      options_(options),
      tiers_(std::move(tiers)),
      store_(shape, ledger, tiers_, options.tier),
      slots_(shape, ledger) {}

void SlotCache::offload(EntrySegment& tail) {
  const int64_t n = tail.entries(0);
  for (const int64_t head : awaiting_) slots_.replace(head, slots_.entries(head), tail, 0);
  awaiting_.clear();
  store_.append(tail, 0, n);
  tail.drop_front(n);
}

std::vector<int32_t> SlotCache::wanted_of(int64_t kv_head) const {
  const auto lists = static_cast<int64_t>(wanted_.size()) / shape_.kv_heads;  // lists of each kv head
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
  awaiting_.clear();
  missing_.assign(static_cast<size_t>(shape_.kv_heads), {});
  int64_t count = 0;
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    const std::vector<int32_t> held = options_.elastic ? slots_.positions(h) : std::vector<int32_t>();
    std::ranges::set_difference(wanted_of(h), held, std::back_inserter(missing_[h]));
    if (!missing_[h].empty() && missing_[h].back() == sent()) missing_[h].pop_back();  // comes with the tail
    count += static_cast<int64_t>(missing_[h].size());
  }
  if (count == 0) return;
  rows_ = Buffer(ledger_, Tier::device, count * store_.row_bytes());
  transfer_ = store_.load(missing_, rows_.data());
}

std::unique_ptr<Segment> SlotCache::arrive(const EntrySegment& tail) {
  KVARENA_ASSERT(tail.entries(0) == 0 || (tail.entries(0) == 1 && tail.position(0, 0) == sent()),
                 fmt::format("a tail of {} entries behind {}", tail.entries(0), sent()));
  transfer_.wait();
  loaded_ = transfer_.as_load();
  place_in_slots(tail);
  transfer_ = {};
  rows_ = {};
  Lists places;  // places of the wanted entries
  const auto lists = wanted_.size() / static_cast<size_t>(shape_.kv_heads);
  for (size_t list = 0; list < wanted_.size(); ++list) {
    const std::vector<int32_t> held = slots_.positions(static_cast<int64_t>(list / lists));
    std::vector<int32_t>& own = places.emplace_back();
    for (const int32_t position : wanted_[list])
      own.push_back(static_cast<int32_t>(std::ranges::lower_bound(held, position) - held.begin()));
  }
  return std::make_unique<IndexedSegment>(slots_, places, ledger_);
}

void SlotCache::place_in_slots(const EntrySegment& tail) {
  EntrySegment arrived(shape_, ledger_), next(shape_, ledger_);
  const std::byte* rows = rows_.data();
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    append_rows(shape_, rows, missing_[h], h, arrived);
    rows += static_cast<int64_t>(missing_[h].size()) * store_.row_bytes();
    const std::vector<int32_t> held = slots_.positions(h);
    for (const int32_t position : wanted_of(h)) {
      const int64_t slot = next.entries(h);
      if (position == sent() && tail.entries(h) == 0) {
        awaiting_.push_back(h);
      } else if (position == sent()) {
        next.replace(h, slot, tail, 0);
      } else if (const auto place = place_in(missing_[h], position)) {
        next.replace(h, slot, arrived, *place);
      } else {
        next.replace(h, slot, slots_, *place_in(held, position));
      }
    }
  }
  slots_ = std::move(next);
  if (!options_.elastic) source_ = new_version();  // a copy on a device gets all of it again
}

std::unique_ptr<LayerIndex> SlotCache::clone(const LedgerPtr& ledger) const {
  auto copy = std::make_unique<SlotCache>(shape_, ledger, tiers_, options_);
  copy->store_ = std::move(*store_.clone(ledger));
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    for (int64_t slot = 0; slot < slots_.entries(h); ++slot) copy->slots_.replace(h, slot, slots_, slot);
  }
  return copy;
}

}  // namespace kvarena::storage
