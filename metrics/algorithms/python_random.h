#pragma once
// Python's random.Random, draw for draw.

#include <cstdint>
#include <optional>
#include <random>

namespace kvarena::metrics {

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

 private:
  std::mt19937 draw_;
  std::optional<double> next_gauss_;  // they come in pairs
};

}  // namespace kvarena::metrics
