#include "harness/cache/indexed_segment.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena {

IndexedSegment::IndexedSegment(const EntrySegment& base, const std::vector<std::vector<int32_t>>& selected,
                               const LedgerPtr& ledger)
    : Segment(base.shape()), base_(&base), ledger_(ledger) {
  const auto lists = static_cast<int64_t>(selected.size());
  KVARENA_ASSERT(
      lists == base.shape().kv_heads || lists == base.shape().q_heads,
      fmt::format("{} lists for {} kv heads and {} query heads", lists, base.shape().kv_heads, base.shape().q_heads));
  for (const auto& list : selected) {
    selected_.emplace_back(list.begin(), list.end(), LedgerAllocator<int32_t>(ledger));
  }
}

bool IndexedSegment::per_query_head() const { return static_cast<int64_t>(selected_.size()) != shape().kv_heads; }

std::span<const int32_t> IndexedSegment::selected(int64_t q_head) const {
  return selected_[per_query_head() ? q_head : q_head / shape().group()];
}

int64_t IndexedSegment::entries(int64_t kv_head) const {
  return static_cast<int64_t>(selected(kv_head * shape().group()).size());
}

std::vector<int32_t> IndexedSegment::positions(int64_t kv_head) const {
  const std::vector<int32_t> all = base_->positions(kv_head);
  std::vector<int32_t> list;
  for (const int32_t i : selected(kv_head * shape().group())) list.push_back(all[i]);
  return list;
}

int64_t IndexedSegment::bytes() const {
  int64_t total = 0;
  for (const auto& list : selected_) total += static_cast<int64_t>(list.capacity() * sizeof(int32_t));
  return total;
}

void IndexedSegment::plan(const LayerQueries& queries, AttentionPlan& to) const {
  base_->plan(queries, to);
  AttentionItem& item = to.items.back();
  item.lists.assign(selected_.begin(), selected_.end());
  to.columns = item.column;
  for (const auto& list : selected_) to.columns = std::max(to.columns, item.column + std::ssize(list));
}

std::unique_ptr<Segment> IndexedSegment::clone(const LedgerPtr& ledger) const {
  std::vector<std::vector<int32_t>> lists;
  for (const auto& list : selected_) lists.emplace_back(list.begin(), list.end());
  return std::make_unique<IndexedSegment>(*base_, std::move(lists), ledger);
}

}  // namespace kvarena
