#pragma once
// A layer whose far entries are all seen at one distance.

#include "harness/cache/entry_segment.h"

namespace kvarena {

/// Near entries, those of the tail that are closer to a query than the window, are seen where they are. Far ones have
/// keys without rotation and are seen by queries turned to one angle: distance no longer matters. One softmax runs over
/// both (Xiao et al. 2024, arXiv:2402.04617). What is referred to must outlive the view and must not change while it is
/// used.
class ClampedDistanceView final : public Segment {
 public:
  struct Parts {
    const EntrySegment* tail = nullptr;  // dense; its newest entries are the queries' own
    int64_t window = 0;                  // near: position of the query - position < window
    /// Seen whole by every query, before the tail; ascending positions over all, the same number of every head.
    std::vector<const EntrySegment*> far;
    /// The first entries of the tail once more, without rotation: those that the newest query sees from afar. A query
    /// sees the ones that its window does not reach.
    const EntrySegment* overflow = nullptr;
    std::vector<float> queries;  // [q_len, q_heads, head_dim], turned
  };
  explicit ClampedDistanceView(Parts parts) : Segment(parts.tail->shape()), parts_(std::move(parts)) {}
  [[nodiscard]] const Parts& parts() const { return parts_; }
  /// Counts the queries, the last of q_len, that see any overflow entry: the newest sees every one, each before it one
  /// fewer.
  [[nodiscard]] int64_t seeing_overflow(int64_t q_len) const;

  [[nodiscard]] int64_t entries(int64_t kv_head) const override;
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override;
  /// 0: what it shows is counted where it lies.
  [[nodiscard]] int64_t bytes() const override { return 0; }
  /// For the queries that were turned, which own the tail's newest entries. Overflow entries stand under the columns of
  /// the tail's first ones.
  void plan(const LayerQueries& queries, AttentionPlan& to) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;

 private:
  Parts parts_;
};

}  // namespace kvarena
