#pragma once
// Keys as products of two thin matrices, values on a tier behind the device: entries that are put together only where
// they are attended.

#include <functional>

#include "harness/cache/gathered_segment.h"
#include "harness/storage/entry_store.h"

namespace kvarena::storage {

/// Rotary embedding of keys in the half-split layout: channel pair (c, c + pairs) at position p turns by p *
/// inverse[c].
struct KeyRotation {
  std::vector<double> inverse;  // [pairs]
  double magnitude = 1.0;       // factor on cosine and sine

  /// Turns keys [positions.size(), head_dim] forth to their positions, by angles in float32.
  void turn(float* keys, int64_t head_dim, const std::vector<int32_t>& positions) const;
  /// Takes the rotation away.
  void undo(float* key, int64_t position) const;
};

/// The first n entries of every head, at positions 0 .. n-1. Before rotation the key of entry i of head j is
///   left[i] . right[j],   left [n, rank], right [kv_heads, rank, head_dim], in the layer's type
/// but for the entries of each head that are kept exactly, keys and values, on the device. All values lie in the tier:
/// they are counted there and not in bytes(), which is what the device holds.
class LowRankSegment final : public Segment {
 public:
  struct Parts {
    int64_t n = 0;
    int64_t rank = 0;
    std::vector<float> left;                  // [n, rank]
    std::vector<float> right;                 // [kv_heads, rank, head_dim]
    std::vector<std::vector<int32_t>> exact;  // [kv_heads], ascending, equally many
    std::shared_ptr<const KeyRotation> rotation;
  };
  /// Values and exact keys are those of `from`, a dense segment that begins at position 0. Waits until the values are
  /// in the tier. Throws UserError when there is no such tier, TierFull, and the transfer's error.
  LowRankSegment(const EntrySegment& from, const Parts& parts, LedgerPtr ledger, HierarchyPtr tiers, Tier tier);

  /// Entries of each head, [kv_heads] ascending.
  using Lists = std::vector<std::vector<int32_t>>;
  /// Entries put together, and what came over the link for it.
  struct Fetched {
    std::unique_ptr<GatheredSegment> entries;
    Traffic loaded;
  };
  /// The listed entries, none of them exact: their values come while their keys are restored. Throws the transfer's
  /// error.
  [[nodiscard]] Fetched fetch(const Lists& lists) const;
  /// Every entry, exact ones as they are, likewise.
  [[nodiscard]] Fetched fetch_all() const;
  /// The entries kept exactly.
  [[nodiscard]] const GatheredSegment& exact() const { return *exact_; }

  [[nodiscard]] int64_t entries(int64_t /*kv_head*/) const override { return n_; }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override;
  [[nodiscard]] int64_t bytes() const override;
  [[nodiscard]] int64_t offloaded_bytes() const { return values_.offloaded_bytes(); }
  /// Every entry, put together on the host.
  void plan(const LayerQueries& queries, AttentionPlan& to) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;

 private:
  LowRankSegment(const LowRankSegment& from, const LedgerPtr& ledger);
  /// The listed entries; keys(kv_head) gives theirs, [list, head_dim], while values come.
  [[nodiscard]] Fetched with_values(const Lists& lists, const std::function<std::vector<float>(int64_t)>& keys) const;
  /// Restored keys of the listed entries, [count, head_dim].
  [[nodiscard]] std::vector<float> keys_of(int64_t kv_head, const std::vector<int32_t>& list) const;

  LedgerPtr ledger_;
  int64_t n_;
  int64_t rank_;
  LedgerVector<std::byte> left_;
  LedgerVector<std::byte> right_;
  mutable EntryStore values_;  // loading and cloning wait for what is on its way
  std::unique_ptr<GatheredSegment> exact_;
  std::shared_ptr<const KeyRotation> rotation_;
};

}  // namespace kvarena::storage
