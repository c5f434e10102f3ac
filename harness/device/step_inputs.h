#pragma once
// Inputs that the host tells the device about a pass, in one copy to a place that recorded passes read again.

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/cuda/device.h"

namespace kvarena::device {

/// One pass's rows: on the device, valid until the next tell().
struct StepInputs {
  const int32_t* tokens = nullptr;  // [rows]
  const int32_t* before = nullptr;  // [sequences], tokens of each before the pass
  const float* cos = nullptr;       // [rows, half]
  const float* sin = nullptr;       // [rows, half]
  const int32_t* lists = nullptr;   // [as asked], positions that are attended
};

class InputBuffer {
 public:
  struct Sizes {
    int64_t rows = 0, sequences = 0;
    int64_t half = 0;    // rotated pairs of a head
    int64_t listed = 0;  // numbers in all lists
  };
  struct Host {
    std::span<int32_t> tokens, before;
    float* cos;
    float* sin;
    std::span<int32_t> lists;
  };
  /// Pinned room for such a pass, to be filled; waits until an earlier pass has been copied.
  [[nodiscard]] Host room(const Sizes& sizes);
  /// Sends what room() was filled with. The same sizes get the same addresses until a larger pass was told.
  [[nodiscard]] StepInputs tell(kernels::CudaStream stream);
  /// Grows when addresses change.
  [[nodiscard]] int64_t moves() const { return moves_; }

 private:
  std::unique_ptr<kernels::PinnedBuffer> pinned_;
  kernels::CudaBuffer device_;
  kernels::CudaMark copied_;
  Sizes sizes_;
  int64_t moves_ = 0;
};

}  // namespace kvarena::device
