#pragma once
// Entries put together for a step, or kept by themselves: each head its own, at any positions.

#include <span>

#include "harness/cache/attention_plan.h"
#include "harness/cache/entry_segment.h"

namespace kvarena {

/// Grows entry by entry in ascending positions a head; what it holds is in full precision, in cells.
class GatheredSegment final : public Segment {
 public:
  /// Room for `entries` of each head is taken at once.
  GatheredSegment(const LayerShape& shape, int64_t entries, LedgerPtr ledger);

  /// Entries behind those that are there: keys, values [positions.size(), head_dim], rounded to the layer's type.
  void add(int64_t kv_head, std::span<const int32_t> positions, const float* keys, const float* values);

  /// A head's entries as the attention kernels see them.
  [[nodiscard]] kernels::HeadRun run(int64_t kv_head) const;

  [[nodiscard]] int64_t entries(int64_t kv_head) const override {
    return static_cast<int64_t>(heads_[kv_head].positions.size());
  }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override;
  [[nodiscard]] int64_t bytes() const override;
  void plan(const LayerQueries& queries, AttentionPlan& to) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;

 private:
  struct Head {
    explicit Head(const LedgerPtr& ledger)
        : keys(LedgerAllocator<std::byte>(ledger)),
          values(LedgerAllocator<std::byte>(ledger)),
          positions(LedgerAllocator<int32_t>(ledger)) {}
    LedgerVector<std::byte> keys;    // [cells, head_dim, 16]
    LedgerVector<std::byte> values;  // [cells, 16, head_dim]
    LedgerVector<int32_t> positions;
  };
  [[nodiscard]] kernels::Cells cells(const Head& head, kernels::CellKind kind) const;

  LedgerPtr ledger_;
  std::vector<Head> heads_;
};

/// A view of segments one after the other, the first ones its own, for a pass whose entries lie in several places.
/// Borrowed ones must outlive the view and must not change while it is used. `tail` comes last and holds the pass's
/// entries, which their own query and later ones see; without one a view is for single queries.
class ConcatView final : public Segment {
 public:
  ConcatView(std::unique_ptr<Segment> own, const std::vector<const Segment*>& borrowed, const EntrySegment& tail);
  ConcatView(std::unique_ptr<Segment> first, std::unique_ptr<Segment> second);
  /// Its own first.
  [[nodiscard]] std::span<const Segment* const> parts() const { return parts_; }

  [[nodiscard]] int64_t entries(int64_t kv_head) const override;
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override;
  /// Bytes of its own segments.
  [[nodiscard]] int64_t bytes() const override;
  void plan(const LayerQueries& queries, AttentionPlan& to) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;

 private:
  explicit ConcatView(const LayerShape& shape) : Segment(shape) {}
  void add(std::unique_ptr<Segment> own);

  std::vector<std::unique_ptr<Segment>> own_;
  std::vector<const Segment*> parts_;   // own_ first, the tail last
  const EntrySegment* tail_ = nullptr;  // null: none
};

}  // namespace kvarena
