#pragma once
// A record of what happened to a segment's entries since an observer last looked, beside what Segment::version() tells.

#include <algorithm>
#include <cstdint>
#include <vector>

namespace kvarena {

/// Written by the segment. One observer marks it, and reads what follows: dropped, truncated and rewritten entries are
/// told apart because each is cheaper to follow than a segment anew.
class EntryChanges {
 public:
  /// Records from now on, for a segment of this content that holds so many entries.
  void mark(uint64_t version, int64_t kv_heads, int64_t entries) {
    marked_ = {.version = version, .entries = entries, .drops = drops_};
    intact_ = entries;
    rewritten_.assign(static_cast<size_t>(kv_heads), {});
  }
  /// Whether a segment of this content still holds what it did at mark(), and nothing else.
  [[nodiscard]] bool none(uint64_t version, int64_t entries) const {
    return marked_.version == version && marked_.drops == drops_ && marked_.entries == entries && intact_ == entries &&
           std::ranges::all_of(rewritten_, [](const std::vector<int32_t>& head) { return head.empty(); });
  }
  /// Times that some entries were dropped from among the others, ever: their positions tell which are left.
  [[nodiscard]] int64_t drops() const { return drops_; }
  /// Entries of each head at mark() that were never taken back since, before any were dropped.
  [[nodiscard]] int64_t intact() const { return intact_; }
  /// [kv_heads] positions of the entries rewritten since mark(), in any order; some may have left. Empty when never
  /// marked, and where too many were.
  [[nodiscard]] const std::vector<std::vector<int32_t>>& rewritten() const { return rewritten_; }

  void dropped() { ++drops_; }
  void truncated(int64_t entries) { intact_ = std::min(intact_, entries); }
  /// Notes a rewritten entry; false where the record cannot hold it: never marked, or as long as the head, as where
  /// nobody looks any more.
  [[nodiscard]] bool rewrote(int64_t kv_head, int32_t position, int64_t entries) {
    if (rewritten_.empty() || std::ssize(rewritten_[static_cast<size_t>(kv_head)]) >= entries) return false;
    rewritten_[static_cast<size_t>(kv_head)].push_back(position);
    return true;
  }
  /// The content is another one: what was rewritten no longer matters.
  void replaced() { rewritten_.clear(); }

 private:
  struct Mark {
    uint64_t version = 0;
    int64_t entries = 0, drops = 0;
  };
  Mark marked_;
  int64_t drops_ = 0, intact_ = 0;
  std::vector<std::vector<int32_t>> rewritten_;  // [kv_heads]; empty while nobody could follow
};

}  // namespace kvarena
