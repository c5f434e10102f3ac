#pragma once
// Many small copies in one launch, where each would cost as much as a kernel does.

#include <cstdint>
#include <span>

#include "kernels/cuda/device.h"

namespace kvarena::kernels {

/// One copy between two places on the device; both places and the count of bytes are even.
struct Piece {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t bytes = 0;
};

/// Queues all copies; no piece may overlap another's place. Made for pieces of up to some ten thousand bytes.
void copy_pieces_cuda(std::span<const Piece> pieces, CudaScratch& scratch, CudaStream stream);

}  // namespace kvarena::kernels
