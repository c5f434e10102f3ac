#include "harness/core/normal_draws.h"

#include <cmath>
#include <numbers>

namespace kvarena {

std::vector<float> draw_normal(int64_t count, const RandomStream& draws) {
  std::vector<float> normal(static_cast<size_t>(count));
  for (size_t i = 0; i < normal.size(); ++i) {
    const double radius = std::sqrt(-2 * std::log1p(-draws.uniform(2 * i)));
    normal[i] = static_cast<float>(radius * std::cos(2 * std::numbers::pi * draws.uniform(2 * i + 1)));
  }
  return normal;
}

}  // namespace kvarena
