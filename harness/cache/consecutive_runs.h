#pragma once
// Runs of consecutive numbers in a list: what lies together is read or turned together.

#include <cstdint>
#include <span>

namespace kvarena {

/// Calls visit(i, count) for each run list[i], list[i] + 1, .. of the list, in order.
template <class Visit>
void each_consecutive_run(std::span<const int32_t> list, const Visit& visit) {
  for (size_t i = 0; i < list.size();) {
    size_t end = i + 1;
    while (end < list.size() && list[end] == list[end - 1] + 1) ++end;
    visit(static_cast<int64_t>(i), static_cast<int64_t>(end - i));
    i = end;
  }
}

}  // namespace kvarena
