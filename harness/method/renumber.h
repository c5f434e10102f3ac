#pragma once
// Positions inside the cache: after entries have left, those that stayed are attended to as if they stood next to each
// other, which is where StreamingLLM and kvpress's key re-rotation put them.
//
// Their rule rotates entry i of m by i and the next query by m. Only differences count, and the next query has been
// rotated by its place in the text already: so entry i is rotated to next - m + i, which leaves every entry behind the
// last gap as it is.

#include "harness/cache/entry_segment.h"
#include "harness/method/model_facts.h"

namespace kvarena {

/// Keys of rotated entries as they were before, so that an entry that is rotated again and again is rounded once.
/// Counted.
class PreRotationKeys {
 public:
  explicit PreRotationKeys(LedgerPtr ledger) : ledger_(std::move(ledger)) {}
  PreRotationKeys(const PreRotationKeys& from, const LedgerPtr& ledger);

  [[nodiscard]] int64_t bytes() const;

 private:
  friend void renumber(EntrySegment& entries, const Rotation& rotation, int64_t next, PreRotationKeys& pre_rotation);

  struct Head {
    LedgerVector<int32_t> positions;  // ascending
    LedgerVector<float> keys;         // [positions, head_dim]
  };
  /// Keys of the first `count` entries as they were.
  [[nodiscard]] std::vector<float> keys_of(const EntrySegment& entries, int64_t kv_head, int64_t count) const;

  LedgerPtr ledger_;
  std::vector<Head> heads_;  // empty until something was rotated
};

/// Rotates the keys of each head's entries to their places in front of position `next`, which the next query has.
/// Original positions stay what they are. Call it after entries have left, always with the same `pre_rotation`.
void renumber(EntrySegment& entries, const Rotation& rotation, int64_t next, PreRotationKeys& pre_rotation);

}  // namespace kvarena
