#include "harness/device/ranks/device_driver.h"

#include "harness/device/device_products.h"
#include "harness/device/ranks/device_parts.h"
#include "harness/device/ranks/meet_devices.h"
#include "harness/model/ranks/parts.h"
#include "kernels/elementwise/elementwise_cuda.h"

namespace kvarena::device {

DeviceDriver::DeviceDriver(RankDriver& ranks, DeviceWeights& weights) : ranks_(&ranks) {
  ranks.alone([&] {
    ranks.order_devices({.work = Order::Work::meet_devices});
    std::string reason;
    const auto nccl = find_nccl(reason);
    Met met = meet_devices(ranks.channel(), nccl, reason);
    detour_ = std::move(met.detour);
    share_ = std::make_unique<DeviceShare>(ranks.channel().share(), std::move(met.exchange));
  });
  replies_.resize(static_cast<size_t>(share_->ranks()));
  const std::vector<DevicePart> parts = parts_of(weights);
  for (size_t part = 0; part < parts.size(); ++part) {
    std::visit([&](auto* one) { one->elsewhere = {.driver = this, .part = static_cast<int64_t>(part)}; }, parts[part]);
  }
}

void DeviceDriver::give(int64_t part, int64_t rows, const float* x, int64_t count, kernels::CudaStream stream) {
  ranks_->order_devices({.work = Order::Work::device_product, .part = part, .rows = rows});
  std::vector<Letter> out;
  for (int64_t rank = 1; rank < share_->ranks(); ++rank) {
    out.push_back({.other = rank, .data = const_cast<float*>(x), .count = count});
  }
  share_->exchange().exchange(out, {}, stream);
}

void DeviceDriver::collect(const DeviceProjection& w, const float* x, int64_t rows, float* y, bool add,
                           kernels::CudaStream stream) {
  float* whole = add ? whole_.at_least(rows * w.out, moves_) : y;
  project_held(w, x, rows, whole + w.held.begin, {.x = w.matrix.k(), .y = w.out}, /*add=*/false, stream);
  std::vector<Letter> coming;
  for (int64_t rank = 1; rank < share_->ranks(); ++rank) {
    const int64_t count = rows * share_->of(rank).of(w.out).count();
    coming.push_back({.other = rank, .data = replies_[rank].at_least(count, moves_), .count = count});
  }
  share_->exchange().exchange({}, coming, stream);
  for (const Letter& reply : coming) {
    const RowRange place = share_->of(reply.other).of(w.out);
    kernels::cuda_copy_rows(whole + place.begin, w.out * 4, reply.data, place.count() * 4, place.count() * 4, rows,
                            stream);
  }
  if (add) kernels::add_into_cuda(y, whole, rows * w.out, stream);
}

void DeviceDriver::project(const DeviceProjection& w, const float* x, int64_t rows, float* y, bool add,
                           kernels::CudaStream stream) {
  if (rows == 0) return;
  ranks_->alone([&] {
    give(w.elsewhere.part, rows, x, rows * w.matrix.k(), stream);
    collect(w, x, rows, y, add, stream);
  });
}

void DeviceDriver::feed_forward(const DeviceDense& w, const float* in, int64_t rows, float* out, bool add,
                                kernels::CudaStream stream) {
  if (rows == 0) return;
  ranks_->alone([&] {
    give(w.elsewhere.part, rows, in, rows * w.gate_up.matrix.k(), stream);
    collect(w.down, share_->inner(w, in, rows, stream), rows, out, add, stream);
  });
}

void DeviceDriver::confirm() {
  ranks_->alone([&] { share_->exchange().confirm(); });
}

}  // namespace kvarena::device
