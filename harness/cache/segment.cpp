#include "harness/cache/segment.h"

#include <cmath>

namespace kvarena {

float attention_scale(const LayerShape& shape) { return 1.0F / std::sqrt(static_cast<float>(shape.head_dim)); }

}  // namespace kvarena
