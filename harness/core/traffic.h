#pragma once
// Bytes over a link, and their time.

#include <cstdint>

namespace kvarena {

/// Bytes that a request moved between the device and the tiers behind it, and the time that took.
struct Traffic {
  int64_t loaded_bytes = 0;
  int64_t offloaded_bytes = 0;
  double link_seconds = 0;     // that loads occupied the link
  double stalled_seconds = 0;  // that a pass waited for loads; the rest was hidden behind computing

  Traffic& operator+=(const Traffic& other) {
    loaded_bytes += other.loaded_bytes;
    offloaded_bytes += other.offloaded_bytes;
    link_seconds += other.link_seconds;
    stalled_seconds += other.stalled_seconds;
    return *this;
  }
};

}  // namespace kvarena
