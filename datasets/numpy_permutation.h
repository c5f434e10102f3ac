#pragma once
// The order in which Hugging Face's datasets shuffle rows.

#include <cstdint>
#include <vector>

namespace kvarena::datasets {

/// numpy.random.default_rng(seed).permutation(n): PCG64 (O'Neill 2014), seeded by NumPy's SeedSequence. n < 2^32.
[[nodiscard]] std::vector<uint32_t> numpy_permutation(uint32_t seed, uint32_t n);

}  // namespace kvarena::datasets
