#include "tests/support/random_entries.h"

#include "harness/core/random.h"

namespace kvarena::testing {

std::vector<float> random_floats(int64_t count, std::string_view what, uint64_t seed) {
  const RandomStream stream(seed, what);
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(2 * stream.uniform(static_cast<uint64_t>(i)) - 1);
  return values;
}

std::vector<float> drawn_numbers(const std::string& purpose, int64_t count, double scale) {
  const RandomStream stream(1, purpose);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<float>(scale * (2 * stream.uniform(static_cast<uint64_t>(i)) - 1)));
  return values;
}

}  // namespace kvarena::testing
