#pragma once
// Normal numbers from counter-based draws.

#include <cstdint>
#include <vector>

#include "harness/core/random.h"

namespace kvarena {

/// Standard normal numbers, each of two draws, from draw 0 on (Box and Muller 1958).
[[nodiscard]] std::vector<float> draw_normal(int64_t count, const RandomStream& draws);

}  // namespace kvarena
