#pragma once
// Entries in a codec's real bits.

#include <span>

#include "harness/cache/entry_segment.h"

namespace kvarena {

/// Throws UserError naming the head when a number of `rows` is not finite. `what` is "key" or "value".
void require_finite(std::span<const float> rows, const char* what, int64_t head);

/// Entries of each kv head, [kv_heads] ascending indices.
using EntryLists = std::vector<std::vector<int32_t>>;

/// Packed entries that precede the tail. Codecs pack keys in blocks along tokens but values token by token, so the
/// newest values here may still be in 16 bits: entries [0, packed_values) have both sides packed, entries
/// [packed_values, entries) have packed keys only.
class PackedSegment : public Segment {
 public:
  /// Takes the first n entries of `tail` (which forgets them): keys are packed now, values join the 16-bit ones.
  /// n must be a multiple of the codec's key block.
  virtual void take(EntrySegment& tail, int64_t n) = 0;
  /// Packs the n oldest values that are still in 16 bits.
  virtual void pack_values(int64_t n) = 0;
  /// Values of each head still in 16 bits.
  [[nodiscard]] virtual int64_t unpacked_values() const = 0;
  [[nodiscard]] virtual const LayerShape& shape() const = 0;

  /// attend() over the listed entries alone. Unless a segment knows better, they are decoded first.
  virtual void attend_listed(const EntryLists& listed, const LayerQueries& queries,
                             kernels::AttentionState& state) const;
  /// add_probabilities() over the listed entries alone: a column of `sums` is a place in the list.
  virtual void add_listed_probabilities(const EntryLists& listed, const LayerQueries& queries, const float* lse,
                                        float* sums, int64_t row_stride) const;

  [[nodiscard]] StorageForm form() const final { return StorageForm::packed; }
};

}  // namespace kvarena
