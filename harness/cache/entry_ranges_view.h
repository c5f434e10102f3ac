#pragma once
// A view under which rows of a pass attend to ranges of entries of their own: sparse prefill.

#include "harness/cache/entry_segment.h"

namespace kvarena {

/// Entries begin .. end-1.
struct EntryRange {
  int32_t begin = 0;
  int32_t end = 0;
  bool operator==(const EntryRange&) const = default;
};

/// Entries that the rows first .. first+count-1 of a pass attend to, up to each query's own entry.
struct RowRanges {
  int64_t first = 0;
  int64_t count = 0;
  /// Ascending and disjoint ranges: [1] for all heads, [kv_heads] or [q_heads].
  std::vector<std::vector<EntryRange>> heads;
  int64_t window = 0;  // entries up to the query's own, by number, of which it sees those listed; 0: no limit
};

/// Attends to ranges of `base`, a dense segment whose newest entries are the pass's. A row may be in several RowRanges,
/// which then name entries of their own. Entries of some rows are listed one by one only while these attend. The base
/// must outlive the view and must not change while the view is used.
class EntryRangesView final : public Segment {
 public:
  EntryRangesView(const EntrySegment& base, const std::vector<RowRanges>& rows, const LedgerPtr& ledger);

  [[nodiscard]] int64_t entries(int64_t kv_head) const override { return base_->entries(kv_head); }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override { return base_->positions(kv_head); }
  [[nodiscard]] int64_t bytes() const override;
  /// Plans an item for each RowRanges, whose plan is for its rows alone.
  void plan(const LayerQueries& queries, AttentionPlan& to) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;
  /// Pairs of a row and an entry that it sees, over all query heads, of a pass of q_len rows.
  [[nodiscard]] int64_t pairs(int64_t q_len) const;

 private:
  struct Rows {
    explicit Rows(const LedgerPtr& ledger) : ranges(LedgerAllocator<EntryRange>(ledger)) {}
    int64_t first = 0;
    int64_t count = 0;
    int64_t window = 0;
    LedgerVector<EntryRange> ranges;  // of the heads, one behind the other
    std::vector<int64_t> begins;      // [heads + 1] in `ranges`

    [[nodiscard]] int64_t heads() const { return std::ssize(begins) - 1; }
  };
  class Part;

  EntryRangesView(const EntrySegment& base, const LedgerPtr& ledger)
      : Segment(base.shape()), base_(&base), ledger_(ledger) {}

  const EntrySegment* base_;
  LedgerPtr ledger_;
  std::vector<Rows> rows_;
};

}  // namespace kvarena
