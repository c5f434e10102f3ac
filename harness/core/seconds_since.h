#pragma once
// Seconds of the wall clock.

#include <chrono>

namespace kvarena {

[[nodiscard]] inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace kvarena
