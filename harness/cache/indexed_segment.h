#pragma once
// A view that selects entries of another segment; what retrieval methods attend to.

#include "harness/cache/entry_segment.h"

namespace kvarena {

/// Attends to the listed entries of `base` only. Lists are ascending indices into the base's head; one list a kv head,
/// or one a query head where a method selects for each query head by itself. Biases, as long as the lists, are added to
/// the logits of what is listed; without them none are. The base must outlive the view and must not change while the
/// view is used.
class IndexedSegment final : public Segment {
 public:
  IndexedSegment(const EntrySegment& base, const std::vector<std::vector<int32_t>>& selected, const LedgerPtr& ledger,
                 const std::vector<std::vector<float>>& biases = {});

  [[nodiscard]] int64_t entries(int64_t kv_head) const override;
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override;
  [[nodiscard]] int64_t bytes() const override;
  void plan(const LayerQueries& queries, AttentionPlan& to) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;

  /// Where the listed entries lie.
  [[nodiscard]] const EntrySegment& base() const { return *base_; }
  /// [kv_heads] or [q_heads].
  [[nodiscard]] std::span<const LedgerVector<int32_t>> lists() const { return selected_; }
  /// Selected indices of a query head.
  [[nodiscard]] std::span<const int32_t> selected(int64_t q_head) const;

 private:
  [[nodiscard]] bool per_query_head() const;

  const EntrySegment* base_;
  LedgerPtr ledger_;
  std::vector<LedgerVector<int32_t>> selected_;  // [kv_heads] or [q_heads]
  std::vector<LedgerVector<float>> biases_;      // the same, or empty
};

}  // namespace kvarena
