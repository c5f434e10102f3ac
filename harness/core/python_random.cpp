#include "harness/core/python_random.h"

#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>
#include <unordered_set>

namespace kvarena {
namespace {

/// The state of init_by_array() of the Mersenne Twister (Matsumoto and Nishimura 2002) for a key of one word.
struct SeedOfOneWord {
  using result_type = uint32_t;

  uint32_t key;

  template <typename Iterator>
  void generate(Iterator begin, Iterator end) const {
    const auto n = static_cast<uint32_t>(end - begin);
    begin[0] = 19650218;
    for (uint32_t i = 1; i < n; ++i) begin[i] = 1812433253 * mixed(begin[i - 1]) + i;
    uint32_t at = 1;
    const auto step = [&](uint32_t factor, uint32_t add, uint32_t take) {
      begin[at] = (begin[at] ^ (mixed(begin[at - 1]) * factor)) + add - take;
      if (++at < n) return;
      begin[0] = begin[n - 1];
      at = 1;
    };
    for (uint32_t i = 0; i < n; ++i) step(1664525, key, 0);
    for (uint32_t i = 1; i < n; ++i) step(1566083941, 0, at);
    begin[0] = 0x80000000;
  }

 private:
  static uint32_t mixed(uint32_t word) { return word ^ (word >> 30); }
};

std::mt19937 seeded(uint32_t seed) {
  SeedOfOneWord words{seed};
  return std::mt19937(words);
}

}  // namespace

PythonRandom::PythonRandom(uint32_t seed) : draw_(seeded(seed)) {}

double PythonRandom::random() {
  const uint32_t high = static_cast<uint32_t>(draw_()) >> 5;
  const uint32_t low = static_cast<uint32_t>(draw_()) >> 6;
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

double PythonRandom::gauss() {
  if (next_gauss_) {
    const double value = *next_gauss_;
    next_gauss_.reset();
    return value;
  }
  const double angle = random() * 2 * std::numbers::pi;
  const double radius = std::sqrt(-2 * std::log(1 - random()));
  next_gauss_ = std::sin(angle) * radius;
  return std::cos(angle) * radius;
}

uint32_t PythonRandom::below(uint32_t n) {
  const int bits = std::bit_width(n);
  for (;;) {
    const uint32_t drawn = static_cast<uint32_t>(draw_()) >> (32 - bits);
    if (drawn < n) return drawn;
  }
}

std::vector<uint32_t> PythonRandom::sample(uint32_t n, uint32_t count) {
  // From this many on, CPython draws again what it has drawn; below, it draws from a pool that shrinks.
  const double most_pooled = 21 + (count > 5 ? std::pow(4, std::ceil(std::log(count * 3) / std::log(4))) : 0);
  std::vector<uint32_t> drawn;
  if (n <= most_pooled) {
    std::vector<uint32_t> pool(n);
    std::iota(pool.begin(), pool.end(), 0U);
    for (uint32_t left = n; drawn.size() < count; --left) {
      const uint32_t at = below(left);
      drawn.push_back(pool[at]);
      pool[at] = pool[left - 1];
    }
    return drawn;
  }
  std::unordered_set<uint32_t> seen;
  while (drawn.size() < count) {
    if (const uint32_t one = below(n); seen.insert(one).second) drawn.push_back(one);
  }
  return drawn;
}

}  // namespace kvarena
