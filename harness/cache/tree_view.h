#pragma once
// Attention of a tree of tokens whose entries are a layer's newest: each sees what stood before the tree, and its own
// path.

#include <span>

#include "harness/cache/entry_segment.h"

namespace kvarena {

/// The bits of a row are those of a chain that holds its path alone. The layer must be one dense segment without a
/// sliding window; it must outlive the view and must not change while it is used.
class TreeView final : public Segment {
 public:
  /// parents [q_len]: of each of the newest entries the row before it on its path, a lower one, or -1 where that is
  /// what stood before the tree.
  TreeView(const EntrySegment& base, std::span<const int32_t> parents);

  [[nodiscard]] int64_t entries(int64_t kv_head) const override { return base_->entries(kv_head); }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override { return base_->positions(kv_head); }
  /// 0: what it shows is counted where it lies.
  [[nodiscard]] int64_t bytes() const override { return 0; }
  /// For the queries of the tree.
  void plan(const LayerQueries& queries, AttentionPlan& to) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;

 private:
  const EntrySegment* base_;
  std::vector<int32_t> parents_;
};

/// Counts those of `before` entries in front of a tree that all rows attend to at once: whole chunks, after which a
/// run may be cut without changing a bit (kernels/attention).
[[nodiscard]] int64_t entries_before_paths(int64_t before);

/// Lists the entries that a row of a tree behind `before` entries sees from entry `first` on, counted from there: all
/// before the tree, then its path.
[[nodiscard]] std::vector<int32_t> tree_path(std::span<const int32_t> parents, int64_t row, int64_t before,
                                             int64_t first);

/// Positions of a pass's `count` tokens behind `before` others: a chain's where parents are empty, otherwise those of a
/// tree, whose rows stand at their depths.
void append_positions(int64_t before, int64_t count, std::span<const int32_t> parents, std::vector<int32_t>& positions);

}  // namespace kvarena
