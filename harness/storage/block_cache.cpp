#include "harness/storage/block_cache.h"

#include <algorithm>
#include <numeric>

namespace kvarena::storage {

BlockCache::BlockCache(const LayerShape& shape, const LedgerPtr& ledger, HierarchyPtr tiers, const Options& options)
    : shape_(shape),
      ledger_(ledger),
      options_(options),
      tiers_(std::move(tiers)),
      store_(shape, ledger, tiers_, options.tier, options.first) {}

void BlockCache::append(const EntrySegment& from, int64_t first) { store_.append(from, first, options_.block); }

void BlockCache::make_room(const std::vector<int32_t>& wanted, int64_t more) {
  while (held() > 0 && held() + more > options_.held) {
    auto oldest = held_.end();
    for (auto it = held_.begin(); it != held_.end(); ++it) {
      if (std::ranges::binary_search(wanted, it->first)) continue;
      if (oldest == held_.end() || it->second.used < oldest->second.used) oldest = it;
    }
    if (oldest == held_.end()) return;
    held_.erase(oldest);
  }
}

void BlockCache::load(const std::vector<int32_t>& missing, const std::vector<int32_t>& wanted) {
  const int64_t size = options_.block;
  const auto count = static_cast<int64_t>(missing.size());
  std::vector<int32_t> positions(static_cast<size_t>(count * size));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = options_.first + missing[i] * size;
    std::iota(positions.begin() + i * size, positions.begin() + (i + 1) * size, static_cast<int32_t>(first));
  }
  Buffer rows(ledger_, Tier::device, shape_.kv_heads * count * size * store_.row_bytes());
  Transfer transfer =
      store_.load(std::vector<std::vector<int32_t>>(static_cast<size_t>(shape_.kv_heads), positions), rows.data());
  transfer.wait();
  loaded_ = transfer.as_load();

  make_room(wanted, count);
  for (const int32_t block : missing) held_[block].entries = std::make_unique<EntrySegment>(shape_, ledger_);
  const std::byte* from = rows.data();
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    for (int64_t i = 0; i < count; ++i) {
      append_rows(shape_, from, std::span(positions).subspan(i * size, size), h, *held_[missing[i]].entries);
      from += size * store_.row_bytes();
    }
  }
}

void BlockCache::use(const std::vector<int32_t>& blocks) {
  loaded_ = {};
  std::vector<int32_t> missing;
  std::ranges::copy_if(blocks, std::back_inserter(missing), [&](int32_t block) { return !held_.contains(block); });
  if (!missing.empty()) load(missing, blocks);
  ++uses_;
  for (const int32_t block : blocks) held_.at(block).used = uses_;
}

std::vector<const Segment*> BlockCache::held_entries() const {
  std::vector<const Segment*> all;
  for (const auto& [block, held] : held_) all.push_back(held.entries.get());
  return all;
}

int64_t BlockCache::bytes() const {
  int64_t total = 0;
  for (const auto& [block, held] : held_) total += held.entries->bytes();
  return total;
}

std::unique_ptr<LayerIndex> BlockCache::clone(const LedgerPtr& ledger) const {
  auto copy = std::make_unique<BlockCache>(shape_, ledger, tiers_, options_);
  copy->store_ = std::move(*store_.clone(ledger));
  for (const auto& [block, held] : held_) {
    std::unique_ptr<Segment> entries = held.entries->clone(ledger);
    copy->held_.emplace(block,
                        Held{std::unique_ptr<EntrySegment>(static_cast<EntrySegment*>(entries.release())), held.used});
  }
  copy->uses_ = uses_;
  return copy;
}

}  // namespace kvarena::storage
