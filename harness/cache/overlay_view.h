#pragma once
// A layer as it would be if some of its packed entries had come back in exact form.

#include "harness/cache/layer_cache.h"

namespace kvarena {

/// All of a layer's segments, but of the packed one the replaced entries are seen in exact form, in their place in the
/// order: a softmax over the view counts every entry once. The layer, the lists and the exact entries must outlive the
/// view and must not change while it is used.
class OverlayView final : public Segment {
 public:
  /// replaced: indices of packed entries; exact: of each head the same number, in the same order.
  OverlayView(const LayerCache& cache, const EntryLists& replaced, const EntrySegment& exact);

  [[nodiscard]] int64_t entries(int64_t kv_head) const override { return cache_->entries(kv_head); }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override;
  /// 0: what it shows is counted where it lies.
  [[nodiscard]] int64_t bytes() const override { return 0; }
  /// For queries that own the newest entries. Exact entries stand under the columns of those that they replace.
  void plan(const LayerQueries& queries, AttentionPlan& to) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;

 private:
  const LayerCache* cache_;
  const PackedSegment* packed_;
  const EntryLists* replaced_;
  const EntrySegment* exact_;
  EntryLists rest_;
};

}  // namespace kvarena
