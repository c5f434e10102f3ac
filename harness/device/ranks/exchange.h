#pragma once
// How rows travel between the devices of a model's ranks.

#include <cstdint>
#include <span>

#include "kernels/cuda/device.h"

namespace kvarena::device {

/// Numbers of this device that go to another rank, or come from there.
struct PeerBuffer {
  int64_t other = 0;
  float* data = nullptr;
  int64_t count = 0;
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  /// All letters at once, those between two ranks in the same order at both: `out` leaves behind everything that the
  /// stream was given, and what it is given from now on finds `in` arrived. PeerBuffers of no numbers are not sent.
  /// Throws UserError when a rank is lost.
  virtual void exchange(std::span<const PeerBuffer> out, std::span<const PeerBuffer> in,
                        kernels::CudaStream stream) = 0;
  /// Once the stream was waited for: throws UserError where a rank was lost meanwhile, and what arrived is worth
  /// nothing.
  virtual void confirm() {}
};

}  // namespace kvarena::device
