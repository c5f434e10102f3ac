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
  explicit ClampedDistanceView(Parts parts) : parts_(std::move(parts)) {}
  [[nodiscard]] const Parts& parts() const { return parts_; }
  /// Of so many queries, the last ones, those that see any overflow entry: the newest sees every one, each before it one
  /// fewer.
  [[nodiscard]] int64_t seeing_overflow(int64_t q_len) const;

  [[nodiscard]] StorageForm form() const override { return StorageForm::indexed; }
  [[nodiscard]] int64_t entries(int64_t kv_head) const override;
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override;
  /// 0: what it shows is counted where it lies.
  [[nodiscard]] int64_t bytes() const override { return 0; }
  /// For the queries that were turned. The tail's newest q_len entries are theirs whatever `causal` says.
  void attend(const LayerQueries& queries, bool causal, kernels::AttentionState& state) const override;
  void add_probabilities(const LayerQueries& queries, bool causal, const float* lse, float* sums,
                         int64_t row_stride) const override;
  /// add_probabilities() of the near part alone, over the tail's entries.
  void add_near_probabilities(const LayerQueries& queries, const float* lse, float* sums, int64_t row_stride) const;
  /// Keys as they lie: far ones without rotation.
  void read(int64_t kv_head, float* keys, float* values) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;

 private:
  /// The turned queries, from the first on that sees any overflow entry where `overflow` is asked for.
  [[nodiscard]] LayerQueries turned(const LayerQueries& queries, bool overflow) const;

  Parts parts_;
};

}  // namespace kvarena
