#pragma once
// Memory of a pass that grows to the largest pass seen.

#include <cstdint>
#include <memory>

#include "kernels/cuda/device.h"

namespace kvarena::device {

/// Memory of the device; `moves` counts how often some address has changed.
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

/// Pinned memory of the host, counted alike.
class PinnedWorkspace {
 public:
  /// Whether the address has changed.
  bool at_least(int64_t floats) {
    if (floats <= floats_) return false;
    memory_.reset();
    memory_ = std::make_unique<kernels::PinnedBuffer>(floats * 4);
    floats_ = floats;
    return true;
  }
  [[nodiscard]] float* data() const { return static_cast<float*>(memory_->data()); }

 private:
  std::unique_ptr<kernels::PinnedBuffer> memory_;
  int64_t floats_ = 0;
};

}  // namespace kvarena::device
