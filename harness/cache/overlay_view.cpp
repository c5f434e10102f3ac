#include "harness/cache/overlay_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "harness/core/error.h"

namespace kvarena {
namespace {

std::vector<int32_t> all_but(const std::vector<int32_t>& listed, int64_t entries) {
  std::vector<int32_t> all(static_cast<size_t>(entries));
  std::iota(all.begin(), all.end(), 0);
  std::vector<int32_t> rest;
  std::ranges::set_difference(all, listed, std::back_inserter(rest));
  return rest;
}

}  // namespace

OverlayView::OverlayView(const LayerCache& cache, const EntryLists& replaced, const EntrySegment& exact)
    : Segment(cache.shape()),
      cache_(&cache),
      packed_(cache.packed().empty() ? nullptr : cache.packed().front()),
      replaced_(&replaced),
      exact_(&exact) {
  KVARENA_ASSERT(packed_ != nullptr, "nothing is packed");
  for (int64_t h = 0; h < cache.shape().kv_heads; ++h) {
    KVARENA_ASSERT(static_cast<int64_t>(replaced[h].size()) == exact.entries(h),
                   fmt::format("{} entries replace {}", exact.entries(h), replaced[h].size()));
    rest_.push_back(all_but(replaced[h], packed_->entries(h)));
  }
}

std::vector<int32_t> OverlayView::positions(int64_t kv_head) const {
  std::vector<int32_t> all;
  for (const auto& segment : cache_->segments()) {
    const std::vector<int32_t> part = segment->positions(kv_head);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

void OverlayView::plan(const LayerQueries& queries, AttentionPlan& to) const {
  cache_->plan(queries, to);
  const auto packed = std::ranges::find(to.items, packed_, &AttentionItem::from);
  packed->lists.assign(rest_.begin(), rest_.end());
  packed->columns = rest_;
  AttentionPlan exact = plan_of(*exact_, queries);
  exact.items.front().column = packed->column;
  exact.items.front().columns = *replaced_;
  to.items.insert(packed + 1, std::move(exact.items.front()));
}

std::unique_ptr<Segment> OverlayView::clone(const LedgerPtr& /*ledger*/) const {
  return std::make_unique<OverlayView>(*cache_, *replaced_, *exact_);
}

}  // namespace kvarena
