#include "harness/device/ranks/device_rank.h"

#include "harness/core/error.h"
#include "harness/device/device_products.h"
#include "harness/device/ranks/connect_devices.h"

namespace kvarena::device {

DeviceRank::DeviceRank(const ModelConfig& config, const Checkpoint& checkpoint, kernels::DType dtype,
                       const Share& share)
    : share_(share), weights_(load_device_weights(config, checkpoint, dtype, share)), parts_(parts_of(weights_)) {}

void DeviceRank::meet(RankChannel& channel) {
  std::string reason;
  const auto nccl = find_nccl(reason);
  products_ = std::make_unique<DeviceShare>(share_, connect_devices(channel, nccl, reason).exchange);
}

const float* DeviceRank::input(int64_t count) {
  const PeerBuffer letter{.other = 0, .data = input_.at_least(count, moves_), .count = count};
  products_->exchange().exchange({}, {&letter, 1}, queue_.stream());
  return letter.data;
}

void DeviceRank::answer(const DeviceProjection& w, const float* x, int64_t rows) {
  const int64_t held = w.held.count();
  const PeerBuffer letter{.other = 0, .data = reply_.at_least(rows * held, moves_), .count = rows * held};
  project_held(w, x, rows, letter.data, {.x = w.matrix.k(), .y = held}, /*add=*/false, queue_.stream());
  products_->exchange().exchange({&letter, 1}, {}, queue_.stream());
}

void DeviceRank::compute(int64_t part, int64_t rows) {
  KVARENA_ASSERT(products_ != nullptr && part >= 0 && part < std::ssize(parts_), "an order for no part");
  std::visit([&](auto* one) { compute(*one, rows); }, parts_[part]);
}

void DeviceRank::compute(const DeviceProjection& w, int64_t rows) { answer(w, input(rows * w.matrix.k()), rows); }

void DeviceRank::compute(const DeviceDense& w, int64_t rows) {
  const float* in = input(rows * w.gate_up.matrix.k());
  answer(w.down, products_->inner(w, in, rows, queue_.stream()), rows);
}

}  // namespace kvarena::device
