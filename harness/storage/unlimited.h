#pragma once

#include <cstdint>
#include <limits>

namespace kvarena::storage {

/// Capacity in bytes of a tier without a limit.
inline constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

}  // namespace kvarena::storage
