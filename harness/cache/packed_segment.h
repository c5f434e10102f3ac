#pragma once
// Entries in a codec's real bits.

#include <span>

#include "harness/cache/entry_segment.h"

namespace kvarena {

/// Throws UserError naming the head when a number of `rows` is not finite. `what` is "key" or "value".
void require_finite(std::span<const float> rows, const char* what, int64_t head);

/// Packed entries that precede the tail. Codecs pack keys in blocks along tokens but values token by token, so the
/// newest values here may still be in 16 bits: entries [0, packed_values) have both sides packed, entries
/// [packed_values, entries) have packed keys only.
class PackedSegment : public Segment {
 public:
  using Segment::Segment;

  /// Takes the first n entries of `tail` (which forgets them): keys are packed now, values join the 16-bit ones.
  /// n must be a multiple of the codec's key block.
  virtual void take(EntrySegment& tail, int64_t n) = 0;
  /// Packs the n oldest values that are still in 16 bits.
  virtual void pack_values(int64_t n) = 0;
  /// Values of each head still in 16 bits.
  [[nodiscard]] virtual int64_t unpacked_values() const = 0;
  /// Whether its bytes are computed from declared bits, for nothing is packed.
  [[nodiscard]] virtual bool simulated() const { return false; }
};

}  // namespace kvarena
