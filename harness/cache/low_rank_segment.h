#pragma once
// Keys as products of two thin matrices, values on the host: entries that are put together only where they are
// attended.

#include "harness/cache/entry_segment.h"
#include "harness/cache/gathered_segment.h"

namespace kvarena {

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
/// but for the entries of each head that are kept exactly, keys and values, on the device. All values lie on the host:
/// they are counted in the ledger's host tier and not in bytes(), which is what the device holds.
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
  /// Values and exact keys are those of `from`, a dense segment that begins at position 0.
  LowRankSegment(const EntrySegment& from, const Parts& parts, LedgerPtr ledger);

  /// Entries of each head, [kv_heads] ascending, none of them exact; and their rows, [kv_heads][list, head_dim].
  using Lists = std::vector<std::vector<int32_t>>;
  using Rows = std::vector<std::vector<float>>;
  /// Restored keys of the listed entries.
  [[nodiscard]] Rows keys(const Lists& lists) const;
  /// Values of the listed entries, read where they lie on the host: another thread may do that.
  [[nodiscard]] Rows values(const Lists& lists) const;
  /// The listed entries with these keys and values.
  [[nodiscard]] std::unique_ptr<GatheredSegment> gathered(const Lists& lists, const Rows& keys,
                                                          const Rows& values) const;
  /// The entries kept exactly.
  [[nodiscard]] const GatheredSegment& exact() const { return *exact_; }

  [[nodiscard]] int64_t entries(int64_t /*kv_head*/) const override { return n_; }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override;
  [[nodiscard]] int64_t bytes() const override;
  /// Every entry, put together on the host.
  void plan(const LayerQueries& queries, AttentionPlan& to) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;

 private:
  LowRankSegment(const LowRankSegment& from, const LedgerPtr& ledger);
  /// Every entry, exact ones as they are.
  [[nodiscard]] std::unique_ptr<GatheredSegment> everything() const;
  /// Restored keys of the listed entries, [count, head_dim].
  [[nodiscard]] std::vector<float> keys_of(int64_t kv_head, const std::vector<int32_t>& list) const;

  LedgerPtr ledger_;
  int64_t n_;
  int64_t rank_;
  LedgerVector<std::byte> left_;
  LedgerVector<std::byte> right_;
  std::vector<LedgerVector<std::byte>> values_;  // [kv_heads], cells, on the host
  std::unique_ptr<GatheredSegment> exact_;
  std::shared_ptr<const KeyRotation> rotation_;
};

}  // namespace kvarena
