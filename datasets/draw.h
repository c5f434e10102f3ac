#pragma once
// Draws in order from one counter-based stream: what generators use to make a sample from (seed, purpose).

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/core/random.h"

namespace kvarena::datasets {

/// A stream with its own counter. Each sample makes its own, so samples do not depend on one another.
class Draw {
 public:
  Draw(uint64_t seed, std::string_view purpose) : stream_(seed, purpose) {}

  /// Uniform over 0 .. bound-1; bound at least 1.
  size_t below(size_t bound) { return static_cast<size_t>(stream_.below(bound, index_++)); }
  /// Uniform over low .. high, both included.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(static_cast<size_t>(high - low + 1)));
  }
  double uniform() { return stream_.uniform(index_++); }

  template <typename Container>
  const auto& pick(const Container& items) {
    return items[below(std::size(items))];
  }

  /// Fisher-Yates, so that the order depends on the draws alone and not on the standard library.
  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

  /// `count` different indices of 0 .. n-1 in random order; count at most n.
  std::vector<size_t> choose(size_t count, size_t n) {
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t{0});
    shuffle(order);
    order.resize(count);
    return order;
  }

 private:
  RandomStream stream_;
  uint64_t index_ = 0;
};

}  // namespace kvarena::datasets
