#pragma once
// Packed entries in two planes of codes, of which either the first is read or both. Tiwari et al. 2025 (QuantSpec),
// arXiv:2502.10424, section 4.2.

#include "harness/cache/layer_cache.h"
#include "harness/cache/quantized_segment.h"

namespace kvarena {

/// Per group with lo = min x and s = (max x - lo) / 15:
///   upper plane  u = round((x - lo) / s), 4 bits,             says  u s + lo
///   lower plane  w = round(16 (x - (u s + lo)) / s), -8 .. 7, both say  (u + w / 16) s + lo
/// Both planes share s and lo, which are stored in 16 bits: codes are half of 8 bits each. Keys are grouped per channel
/// along tokens, values per token along channels.
class HierarchicalSegment final : public PackedSegment {
 public:
  /// `key_group` entries of a channel share a scale; `value_group` channels of a value, which must divide head_dim.
  HierarchicalSegment(const LayerShape& shape, int64_t key_group, int64_t value_group, LedgerPtr ledger);

  /// n must be a multiple of the key group; keys and values are packed at once. Throws UserError naming the head when a
  /// key or value is not finite.
  void take(EntrySegment& tail, int64_t n) override;
  void pack_values(int64_t /*n*/) override {}
  [[nodiscard]] int64_t unpacked_values() const override { return 0; }
  /// Entries as the upper plane alone decodes them.
  [[nodiscard]] const QuantizedSegment& upper() const { return *upper_; }

  [[nodiscard]] int64_t entries(int64_t kv_head) const override { return upper_->entries(kv_head); }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override { return upper_->positions(kv_head); }
  [[nodiscard]] int64_t bytes() const override;
  /// The upper plane, to which the lower one is added.
  void plan(const LayerQueries& queries, AttentionPlan& to) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;
  void mark(const LedgerPtr& held) override { upper_->mark(held); }
  void rewind() override {
    upper_->rewind();
    change_version();
  }
  void unmark() override { upper_->unmark(); }

 private:
  /// Codes of the lower plane of one head.
  struct Lower {
    Buffer keys;
    Buffer values;
  };

  /// The lower plane's codes with the upper one's scales: what they decode to is 16 times what they add.
  [[nodiscard]] kernels::PackedEntries lower(int64_t kv_head, kernels::CellKind kind) const;
  void encode_lower(int64_t kv_head, kernels::CellKind kind, int64_t first, std::span<const float> rows);

  LedgerPtr ledger_;
  std::unique_ptr<QuantizedSegment> upper_;
  std::vector<Lower> lower_;  // [kv_heads]
};

/// All of a layer's segments, but of hierarchical ones the upper plane alone. The layer must outlive the view and must
/// not change while it is used.
class UpperPlaneView final : public Segment {
 public:
  explicit UpperPlaneView(const LayerCache& cache) : Segment(cache.shape()), cache_(&cache) {}

  [[nodiscard]] int64_t entries(int64_t kv_head) const override { return cache_->entries(kv_head); }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override;
  /// 0: what it shows is counted where it lies.
  [[nodiscard]] int64_t bytes() const override { return 0; }
  /// For queries that own the newest entries.
  void plan(const LayerQueries& queries, AttentionPlan& to) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;

 private:
  const LayerCache* cache_;
};

}  // namespace kvarena
