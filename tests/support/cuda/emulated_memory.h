#pragma once
// Shared by the emulated device's threads and its runtime: initial content of memory, guard zones around it, and the
// source of randomness.

#include <cstddef>
#include <cstdint>

#include "tests/support/cuda/emulated_cuda.h"

namespace emulated_cuda {

inline constexpr size_t kGuardBytes = 64;  // beside memory, to be found as they were
inline constexpr unsigned char kGuard = 0xa5, kPoison = 0xff;

/// Throws std::logic_error where the guard of `what` was written to.
void require_guard(const unsigned char* guard, const char* what);

/// A number of the order in which things are done (set_seed).
[[nodiscard]] uint64_t drawn();

}  // namespace emulated_cuda
