#pragma once
// Python's random.Random, draw for draw.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace kvarena {

class PythonRandom {
 public:
  /// random.Random(seed)
  explicit PythonRandom(uint32_t seed);

  /// random(): in [0, 1), of 53 bits.
  double random();
  /// gauss(0, 1)
  double gauss();
  /// randrange(n), and the index that choice() of `n` draws; `n` is not 0.
  uint32_t below(uint32_t n);
  /// sample(range(n), count); `count` is at most `n`.
  std::vector<uint32_t> sample(uint32_t n, uint32_t count);
  /// shuffle(items)
  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(static_cast<uint32_t>(i))]);
  }

 private:
  std::mt19937 draw_;
  std::optional<double> next_gauss_;  // they come in pairs
};

}  // namespace kvarena
