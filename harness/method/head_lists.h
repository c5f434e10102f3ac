#pragma once
// Lists of numbers that a retriever's index keeps, one a head.

#include <vector>

#include "harness/cache/memory.h"

namespace kvarena {

/// One list for each kv head or query head of a layer, counted in a ledger.
template <typename T>
class HeadLists {
 public:
  HeadLists() = default;
  HeadLists(int64_t heads, const LedgerPtr& ledger) : lists_(heads, LedgerVector<T>(LedgerAllocator<T>(ledger))) {}
  HeadLists(const HeadLists& other, const LedgerPtr& ledger) {
    for (const auto& list : other.lists_) lists_.emplace_back(list, LedgerAllocator<T>(ledger));
  }

  [[nodiscard]] int64_t heads() const { return std::ssize(lists_); }
  [[nodiscard]] LedgerVector<T>& operator[](int64_t head) { return lists_[head]; }
  [[nodiscard]] const LedgerVector<T>& operator[](int64_t head) const { return lists_[head]; }
  [[nodiscard]] int64_t bytes() const {
    size_t total = 0;
    for (const auto& list : lists_) total += list.capacity() * sizeof(T);
    return static_cast<int64_t>(total);
  }

 private:
  std::vector<LedgerVector<T>> lists_;
};

}  // namespace kvarena
