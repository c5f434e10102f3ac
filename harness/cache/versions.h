#pragma once
// Numbers by which copies of entries elsewhere (on a device) know what they are copies of.

#include <atomic>
#include <cstdint>

namespace kvarena {

/// A number that no other content of any segment has. Thread-safe.
[[nodiscard]] inline uint64_t new_version() {
  static std::atomic<uint64_t> versions{0};
  return ++versions;
}

}  // namespace kvarena
