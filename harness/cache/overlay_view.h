#pragma once
// A layer as it would be if some of its packed entries had come back in exact form.

#include "harness/cache/layer_cache.h"
#include "harness/cache/packed_segment.h"

namespace kvarena {

/// The packed segment among a layer's, or null while nothing is packed.
[[nodiscard]] PackedSegment* packed_part(const LayerCache& cache);

/// All of a layer's segments, but of the packed one the replaced entries are seen in exact form, in their place in the
/// order: a softmax over the view counts every entry once. The layer, the lists and the exact entries must outlive the
/// view and must not change while it is used.
class OverlayView final : public Segment {
 public:
  /// replaced: indices of packed entries; exact: of each head the same number, in the same order.
  OverlayView(const LayerCache& cache, const EntryLists& replaced, const EntrySegment& exact);

  /// [kv_heads] packed entries that are not replaced.
  [[nodiscard]] const EntryLists& rest() const { return rest_; }
  /// What takes the others' place.
  [[nodiscard]] const EntrySegment& exact() const { return *exact_; }
  /// Packed entries of the layer, replaced ones included.
  [[nodiscard]] int64_t packed_entries() const { return packed_->entries(0); }
  /// Positions of what is seen in exact form: replaced entries and those that are not packed; ascending.
  [[nodiscard]] std::vector<int32_t> exact_positions(int64_t kv_head) const;
  /// add_probabilities() of the packed entries alone.
  void add_packed_probabilities(const LayerQueries& queries, const float* lse, float* sums, int64_t row_stride) const;

  [[nodiscard]] StorageForm form() const override { return StorageForm::indexed; }
  [[nodiscard]] int64_t entries(int64_t kv_head) const override { return cache_->entries(kv_head); }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override;
  /// 0: what it shows is counted where it lies.
  [[nodiscard]] int64_t bytes() const override { return 0; }
  /// The newest queries.q_len entries belong to the queries whatever `causal` says.
  void attend(const LayerQueries& queries, bool causal, kernels::AttentionState& state) const override;
  void add_probabilities(const LayerQueries& queries, bool causal, const float* lse, float* sums,
                         int64_t row_stride) const override;
  void read(int64_t kv_head, float* keys, float* values) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;

 private:
  const LayerCache* cache_;
  const PackedSegment* packed_;
  const EntryLists* replaced_;
  const EntrySegment* exact_;
  EntryLists rest_;
};

}  // namespace kvarena
