#pragma once
// An array on the device that grows at its end.

#include <cstdint>

#include "harness/device/upload_batch.h"
#include "kernels/cuda/device.h"

namespace kvarena::device {

/// Items one behind the other. They move when there is no room, so nobody keeps data().
template <class Item>
class GrowingArray {
 public:
  /// There after uploads.finish().
  void append(const Item* items, int64_t count, UploadBatch& uploads) {
    reserve(count_ + count, uploads);
    uploads.add(static_cast<Item*>(memory_.data()) + count_, items, 0, count * int64_t{sizeof(Item)});
    count_ += count;
  }
  [[nodiscard]] const Item* data() const { return static_cast<const Item*>(memory_.data()); }
  [[nodiscard]] int64_t count() const { return count_; }
  [[nodiscard]] int64_t bytes() const { return memory_.bytes(); }

 private:
  void reserve(int64_t count, UploadBatch& uploads) {
    const int64_t bytes = count * int64_t{sizeof(Item)};
    if (bytes <= memory_.bytes()) return;
    uploads.finish();  // what is on its way goes to the old place
    kernels::CudaBuffer grown(bytes + bytes / 2);
    if (count_ > 0) kernels::cuda_copy(grown.data(), memory_.data(), count_ * int64_t{sizeof(Item)}, nullptr);
    kernels::cuda_synchronize(nullptr);
    memory_ = std::move(grown);
  }

  kernels::CudaBuffer memory_;
  int64_t count_ = 0;
};

}  // namespace kvarena::device
