#pragma once
// Many pieces that go from the host to places on the device.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/cuda/pieces_cuda.h"

namespace kvarena::device {

/// Small pieces travel together, in one copy that a kernel spreads; large ones by themselves.
class UploadBatch {
 public:
  /// Bytes begin .. end-1 of `from` to the same of `to`: taken at once, there after finish(). Does nothing without a
  /// place.
  void add(void* to, const void* from, int64_t begin, int64_t end);
  /// `place` points to `bytes` in the host's memory, taken at once; behind send() or finish() to their copy on the
  /// device.
  template <typename T>
  void add(const T*& place, int64_t bytes) {
    stage(place, bytes, nullptr, [&place](const void* at) { place = static_cast<const T*>(at); });
  }
  /// Queues all copies. Those without a place of their own lie where CudaScratch::upload() leaves them.
  void send(kernels::CudaScratch& with, kernels::CudaStream stream);
  /// Waits until all have arrived. Copies without a place of their own stay until the next call.
  void finish();

 private:
  struct Staged {
    int64_t begin = 0, bytes = 0;  // in staged_
    void* to = nullptr;
    std::function<void(const void*)> placed;
  };

  void stage(const void* from, int64_t bytes, void* to, std::function<void(const void*)> placed);
  /// From `block`, where staged_ lies on the device.
  void spread(const void* block, kernels::CudaScratch& with, kernels::CudaStream stream);

  std::vector<std::byte> staged_;
  std::vector<Staged> pieces_;
  kernels::CudaBuffer block_;  // staged_ on the device
  kernels::CudaScratch scratch_;
};

}  // namespace kvarena::device
