#include <algorithm>

#include "kernels/cuda/pieces_cuda.h"
#include "kernels/cuda/runtime.cuh"

namespace kvarena::kernels {
namespace {

constexpr int64_t kThreads = 128, kMostItems = 65535;  // kMostItems: limit of a grid's second dimension

__global__ void copy_kernel(const Piece* pieces) {
  const Piece piece = pieces[blockIdx.y];
  const auto* from = static_cast<const uint16_t*>(piece.from);
  auto* to = static_cast<uint16_t*>(piece.to);
  for (int64_t i = threadIdx.x; i < piece.bytes / 2; i += kThreads) to[i] = from[i];
}

}  // namespace

void copy_pieces_cuda(std::span<const Piece> pieces, CudaScratch& scratch, CudaStream stream) {
  while (!pieces.empty()) {
    const auto some = pieces.first(std::min<size_t>(pieces.size(), kMostItems));
    launch_items(copy_kernel, some, 1, kThreads, 0, scratch, stream);
    pieces = pieces.subspan(some.size());
  }
}

}  // namespace kvarena::kernels
