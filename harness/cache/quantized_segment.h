#pragma once
// Packed entries under the group quantisers of kernels/quantize, attended as they lie.

#include <optional>

#include "harness/cache/byte_stream.h"
#include "harness/cache/packed_segment.h"
#include "harness/cache/row_transform.h"
#include "kernels/quantize/quantize.h"

namespace kvarena {

/// How a layer is quantised. Values are grouped per token along channels; keys too, or per channel along tokens.
struct QuantizedFormat {
  kernels::QuantFormat keys;
  kernels::QuantFormat values;
  RowTransformPtr key_transform;    // applied before quantising; null for none
  RowTransformPtr value_transform;  // with one, no values stay in 16 bits
  /// Codebooks that belong to the request, [2^bits]; the segment keeps and counts them. Empty: the formats' own.
  std::vector<float> key_levels;
  std::vector<float> value_levels;
  /// [kv_heads * head_dim] for keys with the rule `given` and a group_size of kWholeRun.
  std::vector<float> key_scale;
  std::vector<float> key_zero;
};

/// Entries that are packed stay as they are, others only come behind them.
class QuantizedSegment final : public PackedSegment, public Storable {
 public:
  QuantizedSegment(const LayerShape& shape, const QuantizedFormat& format, LedgerPtr ledger);

  /// Throws UserError naming the head when a key or value is not finite.
  void take(EntrySegment& tail, int64_t n) override;
  void pack_values(int64_t n) override;
  [[nodiscard]] int64_t unpacked_values() const override { return entries_ - packed_values_; }

  /// One side of a head as it lies, for who stores more beside it.
  [[nodiscard]] kernels::PackedEntries packed(int64_t kv_head, kernels::CellKind kind) const;

  /// The values of a head that are still in 16 bits (or 32).
  [[nodiscard]] kernels::Cells recent_values(int64_t kv_head) const { return recent(heads_[kv_head]); }
  /// Transforms under which keys or values are packed: queries take that of keys, attended values lose theirs; or null.
  [[nodiscard]] const RowTransformPtr& key_transform() const { return format_.key_transform; }
  [[nodiscard]] const RowTransformPtr& value_transform() const { return format_.value_transform; }

  /// Decodes the codes of entries first .. first+count-1, [count, head_dim] each, transforms not undone; all values
  /// must be packed.
  void read_range(int64_t kv_head, int64_t first, int64_t count, float* keys, float* values) const;

  [[nodiscard]] int64_t entries(int64_t /*kv_head*/) const override { return entries_; }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override;
  [[nodiscard]] int64_t bytes() const override;
  void plan(const LayerQueries& queries, AttentionPlan& to) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;
  /// Codes of entries that joined stay where they are, for others to be written over them; held back are the values
  /// that were in 16 bits.
  void mark(const LedgerPtr& held) override;
  void rewind() override;
  void unmark() override { mark_.reset(); }
  void save(CacheWriter& to) const override;
  void load(CacheReader& from) override;

 private:
  /// Codes, scales and zero points of one side of one head.
  struct Side {
    Buffer codes;
    Buffer scale;
    Buffer zero;
    [[nodiscard]] int64_t bytes() const { return codes.bytes() + scale.bytes() + zero.bytes(); }
  };
  struct Head {
    explicit Head(const LedgerPtr& ledger) : positions(LedgerAllocator<int32_t>(ledger)) {}
    Side keys;
    Side values;
    Buffer recent_values;             // cells of the values that are not packed yet
    LedgerVector<int32_t> positions;  // empty while positions are contiguous
  };

  struct Mark {
    LedgerPtr ledger;  // of what is held back
    int64_t entries = 0;
    int64_t packed_values = 0;
    bool contiguous = true;
    std::vector<Buffer> recent_values;  // [kv_heads], once some of them were packed
  };

  /// Bytes of a side's codes, and of each of scale and zero that the format stores.
  struct SideBytes {
    int64_t codes = 0, scale = 0, zero = 0;
  };
  [[nodiscard]] SideBytes bytes_of(kernels::CellKind kind, int64_t entries) const;
  void reserve(Side& side, kernels::CellKind kind, int64_t entries);
  void save(const Side& side, kernels::CellKind kind, int64_t entries, CacheWriter& to) const;
  void load(Side& side, kernels::CellKind kind, int64_t entries, CacheReader& from);
  [[nodiscard]] kernels::PackedEntries view(const Side& side, kernels::CellKind kind) const;
  [[nodiscard]] kernels::Cells recent(const Head& head) const;
  void set_given_meta(Side& side, int64_t kv_head) const;
  void take_positions(const EntrySegment& tail, int64_t n);

  QuantizedFormat format_;
  LedgerPtr ledger_;
  LedgerVector<float> key_levels_;
  LedgerVector<float> value_levels_;
  std::vector<Head> heads_;
  int64_t entries_ = 0;
  int64_t packed_values_ = 0;
  int64_t first_position_ = 0;
  bool contiguous_ = true;
  std::optional<Mark> mark_;
};

}  // namespace kvarena
