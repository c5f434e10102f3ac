#pragma once
// Memory of a pass on the device that grows to the largest pass seen.

#include <cstdint>

#include "kernels/cuda/device.h"

namespace kvarena::device {

/// Grows to the largest size asked for; `moves` counts how often some address has changed.
class Workspace {
 public:
  float* at_least(int64_t floats, int64_t& moves) {
    if (floats * 4 > memory_.bytes()) {
      memory_.reserve(floats * 4);
      ++moves;
    }
    return data();
  }
  [[nodiscard]] float* data() const { return static_cast<float*>(memory_.data()); }

 private:
  kernels::CudaBuffer memory_;
};

}  // namespace kvarena::device
