#pragma once
// Entries stored as latents: numbers along a few directions that entries, heads and perhaps layers share. Attention
// puts keys (before their rotation) and values together from them, a chunk at a time.

#include "harness/cache/codec_side_data.h"

namespace kvarena {

/// Directions of one side of a layer's entries, f16: of each kv head [rank, head_dim]. The rows of `group` neighbouring
/// heads, one behind the other, are directions of as many numbers.
class LatentBasis {
 public:
  /// `directions` [kv_heads, rank, head_dim]. `model`: whether they follow from the model alone, so that no request
  /// holds them.
  LatentBasis(const LayerShape& shape, int64_t rank, int64_t group, std::span<const float> directions,
              const LedgerPtr& ledger, bool model);
  /// A copy in another ledger; of the model's this very one.
  [[nodiscard]] static std::shared_ptr<const LatentBasis> in(const std::shared_ptr<const LatentBasis>& basis,
                                                             const LedgerPtr& ledger);

  [[nodiscard]] int64_t rank() const { return rank_; }
  [[nodiscard]] int64_t group() const { return group_; }
  [[nodiscard]] std::span<const uint16_t> of(int64_t kv_head) const;
  /// Bytes that a request holds because of them.
  [[nodiscard]] int64_t bytes() const { return model_ ? 0 : directions_.bytes(); }
  /// Numbers along the directions of a group of heads: rows [kv_heads, count, head_dim] -> [count, rank].
  [[nodiscard]] std::vector<float> latents(int64_t group, const std::vector<float>& rows, int64_t count) const;

 private:
  LatentBasis(const LatentBasis& from, const LedgerPtr& ledger);

  int64_t rank_, group_, head_dim_;
  bool model_;
  Buffer directions_;
};

/// Latents of entries, f16, and their positions: of one layer, or of several that read the same ones. Bytes are
/// counted once, in the ledger they were made or copied with.
class LatentEntries {
 public:
  /// Groups of heads that have latents of their own.
  LatentEntries(int64_t kv_heads, int64_t key_groups, int64_t value_groups, LedgerPtr ledger);
  /// As MergedPair::copy_in().
  [[nodiscard]] std::shared_ptr<LatentEntries> copy_in(const LedgerPtr& ledger) const;

  /// The next entries: positions [kv_heads][count], latents [groups][count * rank].
  void append(const std::vector<std::vector<int32_t>>& positions, const std::vector<std::vector<float>>& keys,
              const std::vector<std::vector<float>>& values);
  void truncate(int64_t entries);
  [[nodiscard]] const EntryPositions& positions() const { return positions_; }
  /// [entries * rank] of a group of heads.
  [[nodiscard]] std::span<const uint16_t> keys(int64_t group) const { return keys_[group]; }
  [[nodiscard]] std::span<const uint16_t> values(int64_t group) const { return values_[group]; }
  [[nodiscard]] int64_t bytes() const;

 private:
  using Groups = std::vector<LedgerVector<uint16_t>>;

  LedgerPtr ledger_;
  EntryPositions positions_;
  Groups keys_, values_;
  mutable std::weak_ptr<LatentEntries> last_copy_;
};

class LatentSegment final : public PackedSegment {
 public:
  struct Parts {
    std::shared_ptr<LatentEntries> latents;
    std::shared_ptr<const LatentBasis> keys, values;
    RotaryKeys rotary;
    bool counts = true;  // the latents' bytes; of the layers that share them one does
  };
  LatentSegment(const LayerShape& shape, Parts parts, LedgerPtr ledger);

  /// Stores what lies along the directions. For latents of this layer alone.
  void take(EntrySegment& tail, int64_t n) override;
  void pack_values(int64_t /*n*/) override {}
  [[nodiscard]] int64_t unpacked_values() const override { return 0; }

  [[nodiscard]] int64_t entries(int64_t /*kv_head*/) const override { return parts_.latents->positions().entries(); }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override {
    return parts_.latents->positions().of(kv_head);
  }
  [[nodiscard]] int64_t bytes() const override;
  void plan(const LayerQueries& queries, AttentionPlan& to) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;
  void mark(const LedgerPtr& /*held*/) override { marked_ = entries(0); }
  void rewind() override;

 private:
  Parts parts_;
  LedgerPtr ledger_;
  int64_t marked_ = 0;
};

}  // namespace kvarena
