#pragma once
// Counter-based randomness: a draw depends on (seed, what it decides, index) alone, never on threads or chunking.

#include <cstdint>
#include <string_view>

namespace kvarena {

/// A stream of draws for one purpose. Two streams of the same (seed, purpose) are equal; draw i of a stream does not
/// depend on whether draws before it were made. Cheap to copy.
class RandomStream {
 public:
  RandomStream(uint64_t seed, std::string_view purpose);

  /// Draw `index`, uniform over all 64-bit values (SplitMix64's finaliser over key + index).
  [[nodiscard]] uint64_t bits(uint64_t index) const;
  /// Draw `index`, uniform in [0, 1) with 53 bits.
  [[nodiscard]] double uniform(uint64_t index) const;
  /// Draw `index`, uniform over 0 .. bound-1 (multiply-shift; bias below bound/2^64).
  [[nodiscard]] uint64_t below(uint64_t bound, uint64_t index) const;

 private:
  uint64_t key_;
};

}  // namespace kvarena
