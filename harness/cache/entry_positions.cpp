#include "harness/cache/entry_positions.h"

#include <algorithm>
#include <numeric>
#include <ranges>

namespace kvarena {

EntryPositions::EntryPositions(int64_t kv_heads, const LedgerPtr& ledger)
    : lists_(static_cast<size_t>(kv_heads), LedgerVector<int32_t>(LedgerAllocator<int32_t>(ledger))) {}

EntryPositions::EntryPositions(const EntryPositions& from, const LedgerPtr& ledger)
    : entries_(from.entries_), first_(from.first_), run_(from.run_) {
  for (const auto& list : from.lists_) lists_.emplace_back(list.begin(), list.end(), LedgerAllocator<int32_t>(ledger));
}

bool EntryPositions::follow(const std::vector<std::vector<int32_t>>& next) const {
  return std::ranges::all_of(next, [&](const std::vector<int32_t>& list) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i] != first_ + entries_ + static_cast<int64_t>(i)) return false;
    }
    return true;
  });
}

void EntryPositions::list_run() {
  for (size_t h = 0; h < lists_.size(); ++h) {
    const std::vector<int32_t> known = of(static_cast<int64_t>(h));
    lists_[h].assign(known.begin(), known.end());
  }
  run_ = false;
}

void EntryPositions::append(const std::vector<std::vector<int32_t>>& next) {
  if (next.front().empty()) return;
  if (entries_ == 0) first_ = next.front().front();
  if (run_ && !follow(next)) list_run();
  for (size_t h = 0; h < lists_.size() && !run_; ++h) lists_[h].insert(lists_[h].end(), next[h].begin(), next[h].end());
  entries_ += std::ssize(next.front());
}

void EntryPositions::truncate(int64_t entries) {
  entries_ = entries;
  if (run_) return;
  run_ = true;
  for (auto& list : lists_) {
    list.resize(static_cast<size_t>(entries));
    run_ = run_ && std::ranges::equal(
                       list, std::views::iota(static_cast<int32_t>(first_), static_cast<int32_t>(first_ + entries)));
  }
  for (auto& list : lists_) {
    if (run_) list.clear();
  }
}

std::vector<int32_t> EntryPositions::of(int64_t kv_head, int64_t first, int64_t count) const {
  const LedgerVector<int32_t>& list = lists_[kv_head];
  if (!run_) return {list.begin() + first, list.begin() + first + count};
  std::vector<int32_t> some(static_cast<size_t>(count));
  std::iota(some.begin(), some.end(), static_cast<int32_t>(first_ + first));
  return some;
}

int64_t EntryPositions::bytes() const {
  int64_t total = 0;
  for (const auto& list : lists_) total += static_cast<int64_t>(list.capacity() * sizeof(int32_t));
  return total;
}

void EntryPositions::save(CacheWriter& to) const {
  StoredPositions positions{.first = first_};
  for (const auto& list : lists_) {
    if (!run_) positions.heads.emplace_back(list.begin(), list.end());
  }
  positions.save(to);
}

void EntryPositions::load(CacheReader& from, int64_t entries) {
  const StoredPositions positions = StoredPositions::load(from, std::ssize(lists_), entries);
  entries_ = entries;
  first_ = positions.first;
  run_ = positions.heads.empty();
  for (size_t h = 0; h < positions.heads.size(); ++h)
    lists_[h].assign(positions.heads[h].begin(), positions.heads[h].end());
}

}  // namespace kvarena
