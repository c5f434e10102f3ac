#pragma once
// Original positions of entries that join one behind the other.

#include <vector>

#include "harness/cache/byte_stream.h"
#include "harness/cache/memory.h"

namespace kvarena {

/// Holds two numbers while all heads hold one contiguous run, and from the first gap on a list a head, counted in the
/// ledger.
class EntryPositions {
 public:
  EntryPositions(int64_t kv_heads, const LedgerPtr& ledger);
  EntryPositions(const EntryPositions& from, const LedgerPtr& ledger);

  /// Adds positions of the next entries, [kv_heads], as many of each head, ascending.
  void append(const std::vector<std::vector<int32_t>>& next);
  /// Forgets all but the first `entries`.
  void truncate(int64_t entries);
  [[nodiscard]] int64_t entries() const { return entries_; }
  /// Positions of `count` entries of a head from entry `first` on.
  [[nodiscard]] std::vector<int32_t> of(int64_t kv_head, int64_t first, int64_t count) const;
  [[nodiscard]] std::vector<int32_t> of(int64_t kv_head) const { return of(kv_head, 0, entries_); }
  [[nodiscard]] int64_t bytes() const;

  void save(CacheWriter& to) const;
  /// Takes what save() wrote of `entries` entries, into positions of none.
  void load(CacheReader& from, int64_t entries);

 private:
  /// Whether `next`, joined to the entries, leaves one run.
  [[nodiscard]] bool follow(const std::vector<std::vector<int32_t>>& next) const;
  void list_run();

  int64_t entries_ = 0;
  int64_t first_ = 0;
  bool run_ = true;
  std::vector<LedgerVector<int32_t>> lists_;  // [kv_heads], empty of one run
};

}  // namespace kvarena
