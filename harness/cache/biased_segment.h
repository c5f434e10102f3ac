#pragma once
// Entries that have a bias in attention: each stands for as many as e to its bias.

#include <span>
#include <vector>

#include "harness/cache/entry_segment.h"

namespace kvarena {

/// Entries of each kv head, each with a number that is added to its logits.
class BiasedSegment final : public Segment {
 public:
  BiasedSegment(const LayerShape& shape, const LedgerPtr& ledger);

  /// Appends entries to one head: ascending positions, keys and values [positions.size(), head_dim], and a bias for
  /// each.
  void append_to_head(int64_t kv_head, std::span<const int32_t> positions, const float* keys, const float* values,
                      std::span<const float> biases);
  [[nodiscard]] std::span<const float> biases(int64_t kv_head) const { return biases_[kv_head]; }

  [[nodiscard]] int64_t entries(int64_t kv_head) const override { return entries_.entries(kv_head); }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override { return entries_.positions(kv_head); }
  [[nodiscard]] int64_t bytes() const override;
  void plan(const LayerQueries& queries, AttentionPlan& to) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;

 private:
  EntrySegment entries_;
  std::vector<LedgerVector<float>> biases_;  // [kv_heads]
};

}  // namespace kvarena
