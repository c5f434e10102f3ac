#pragma once
// Entries that lie in the cache of a chunk, seen at the chunk's place in a prompt.

#include "harness/cache/codec_side_data.h"

namespace kvarena {

/// Cells of a chunk that was computed alone, from position 0 on: shared with all that hold the chunk, none is copied.
/// Keys stay turned by their places in the chunk; attention turns them on by the chunk's place.
class MovedSegment final : public Segment {
 public:
  /// Shows the entries of `chunk` from `first` on, the start of a cell, behind position `distance` of the prompt. The
  /// cells before `first` are held, and counted, with the others.
  MovedSegment(const EntrySegment& chunk, int64_t first, int64_t distance, RotaryKeys rotation,
               const LedgerPtr& ledger);

  [[nodiscard]] int64_t entries(int64_t kv_head) const override { return chunk_.entries(kv_head) - first_; }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override;
  [[nodiscard]] int64_t bytes() const override { return chunk_.bytes(); }
  void plan(const LayerQueries& queries, AttentionPlan& to) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;

 private:
  EntrySegment chunk_;
  int64_t first_, distance_;
  RotaryKeys rotation_;
};

}  // namespace kvarena
