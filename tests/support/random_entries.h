#pragma once
// Random tensors for tests of caches and methods.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena::testing {

/// `count` floats uniform in [-1, 1).
std::vector<float> random_floats(int64_t count, std::string_view what, uint64_t seed = 1);

/// Uniform in [-scale, scale), as scripts of tests/golden draw them.
std::vector<float> drawn_numbers(const std::string& purpose, int64_t count, double scale);

}  // namespace kvarena::testing
