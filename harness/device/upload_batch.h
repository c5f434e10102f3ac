#pragma once
// Many pieces that go from the host to places on the device.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/pieces_cuda.h"

namespace kvarena::device {

/// Small pieces travel together, in one copy that a kernel spreads; large ones by themselves.
class UploadBatch {
 public:
  /// Bytes begin .. end-1 of `from` to the same of `to`: taken at once, there after finish(). Does nothing without a
  /// place.
  void add(void* to, const void* from, int64_t begin, int64_t end);
  /// Waits until all have arrived.
  void finish();

 private:
  struct Staged {
    int64_t begin = 0, bytes = 0;  // in staged_
    void* to = nullptr;
  };
  std::vector<std::byte> staged_;
  std::vector<Staged> pieces_;
  kernels::CudaBuffer block_;  // staged_ on the device
  kernels::CudaScratch scratch_;
};

}  // namespace kvarena::device
