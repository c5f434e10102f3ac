#include "datasets/numpy_permutation.h"

#include <array>
#include <bit>
#include <numeric>
#include <utility>

namespace kvarena::datasets {
namespace {

__extension__ using Wide = unsigned __int128;

/// SeedSequence(seed).generate_state(4, uint64)
std::array<uint64_t, 4> seed_words(uint32_t seed) {
  uint32_t factor = 0x43b0d7e5;
  const auto hashed = [&](uint32_t value, uint32_t by) {
    value ^= factor;
    factor *= by;
    value *= factor;
    return value ^ (value >> 16);
  };
  std::array<uint32_t, 4> pool{seed};
  for (uint32_t& word : pool) word = hashed(word, 0x931e8875);
  for (size_t from = 0; from < pool.size(); ++from) {
    for (size_t to = 0; to < pool.size(); ++to) {
      if (from == to) continue;
      const uint32_t mixed = 0xca01f9dd * pool[to] - 0x4973f715 * hashed(pool[from], 0x931e8875);
      pool[to] = mixed ^ (mixed >> 16);
    }
  }
  factor = 0x8b51f9dd;
  std::array<uint64_t, 4> words{};
  for (size_t i = 0; i < 8; ++i) {
    words[i / 2] |= uint64_t{hashed(pool[i % 4], 0x58f38ded)} << (i % 2 * 32);
  }
  return words;
}

class Pcg64 {
 public:
  explicit Pcg64(uint32_t seed) {
    const std::array<uint64_t, 4> words = seed_words(seed);
    increment_ = ((Wide{words[2]} << 64 | words[3]) << 1) | 1;
    step();
    state_ += Wide{words[0]} << 64 | words[1];
    step();
  }

  /// The lower half of 64 bits, then the upper one.
  uint32_t next() {
    upper_is_left_ = !upper_is_left_;
    if (!upper_is_left_) return static_cast<uint32_t>(drawn_ >> 32);
    step();
    const auto folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    drawn_ = std::rotr(folded, static_cast<int>(state_ >> 122));
    return static_cast<uint32_t>(drawn_);
  }

 private:
  void step() { state_ = state_ * (Wide{2549297995355413924} << 64 | 4865540595714422341) + increment_; }

  Wide state_ = 0, increment_ = 0;
  uint64_t drawn_ = 0;
  bool upper_is_left_ = false;
};

}  // namespace

std::vector<uint32_t> numpy_permutation(uint32_t seed, uint32_t n) {
  Pcg64 draws(seed);
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  for (uint32_t last = n; last-- > 1;) {
    const uint32_t mask = ~uint32_t{0} >> std::countl_zero(last);
    uint32_t other = draws.next() & mask;
    while (other > last) other = draws.next() & mask;
    std::swap(order[last], order[other]);
  }
  return order;
}

}  // namespace kvarena::datasets
