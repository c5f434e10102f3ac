#include "harness/cache/indexed_segment.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena {

IndexedSegment::IndexedSegment(const EntrySegment& base, const std::vector<std::vector<int32_t>>& selected,
                               const LedgerPtr& ledger, const std::vector<std::vector<float>>& biases)
    : Segment(base.shape()), base_(&base), ledger_(ledger) {
  const auto lists = static_cast<int64_t>(selected.size());
  KVARENA_ASSERT(
      lists == base.shape().kv_heads || lists == base.shape().q_heads,
      fmt::format("{} lists for {} kv heads and {} query heads", lists, base.shape().kv_heads, base.shape().q_heads));
  for (const auto& list : selected) {
    selected_.emplace_back(list.begin(), list.end(), LedgerAllocator<int32_t>(ledger));
  }
  for (const auto& list : biases) {
    KVARENA_ASSERT(list.size() == selected[biases_.size()].size(), "a bias for each listed entry");
    biases_.emplace_back(list.begin(), list.end(), LedgerAllocator<float>(ledger));
  }
  KVARENA_ASSERT(biases_.empty() || biases_.size() == selected_.size(), "biases of every list, or of none");
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
  for (const auto& list : biases_) total += static_cast<int64_t>(list.capacity() * sizeof(float));
  return total;
}

void IndexedSegment::plan(const LayerQueries& queries, AttentionPlan& to) const {
  base_->plan(queries, to);
  AttentionItem& item = to.items.back();
  item.lists.assign(selected_.begin(), selected_.end());
  item.biases.assign(biases_.begin(), biases_.end());
  to.columns = item.column;
  for (const auto& list : selected_) to.columns = std::max(to.columns, item.column + std::ssize(list));
}

std::unique_ptr<Segment> IndexedSegment::clone(const LedgerPtr& ledger) const {
  std::vector<std::vector<int32_t>> lists;
  for (const auto& list : selected_) lists.emplace_back(list.begin(), list.end());
  std::vector<std::vector<float>> biases;
  for (const auto& list : biases_) biases.emplace_back(list.begin(), list.end());
  return std::make_unique<IndexedSegment>(*base_, lists, ledger, biases);
}

}  // namespace kvarena
