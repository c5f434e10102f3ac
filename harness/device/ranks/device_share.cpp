#include "harness/device/ranks/device_share.h"

#include "harness/device/device_products.h"

namespace kvarena::device {

void DeviceShare::place(int64_t rank, const float* from, int64_t rows, int64_t width, float* to,
                        kernels::CudaStream stream) const {
  const RowRange columns = of(rank).of(width);
  kernels::cuda_copy_rows(to + columns.begin, width * 4, from, columns.count() * 4, columns.count() * 4, rows, stream);
}

const float* DeviceShare::inner(const DeviceDense& weights, const float* in, int64_t rows, kernels::CudaStream stream) {
  const int64_t size = weights.down.matrix.k(), held = share_.of(size).count();
  float* own = inner_[share_.rank].at_least(rows * held, moves_);
  gate_held(weights, in, rows, gates_.at_least(2 * rows * held, moves_), own, held, stream);
  std::vector<PeerBuffer> out, coming;
  for (int64_t rank = 0; rank < share_.ranks; ++rank) {
    if (rank == share_.rank) continue;
    const int64_t count = rows * of(rank).of(size).count();
    coming.push_back({.other = rank, .data = inner_[rank].at_least(count, moves_), .count = count});
    out.push_back({.other = rank, .data = own, .count = rows * held});
  }
  exchange_->exchange(out, coming, stream);
  float* whole = whole_.at_least(rows * size, moves_);
  for (int64_t rank = 0; rank < share_.ranks; ++rank) {
    place(rank, inner_[rank].data(), rows, size, whole, stream);
  }
  return whole;
}

}  // namespace kvarena::device
