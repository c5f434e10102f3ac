#include "harness/device/ranks/device_driver.h"

#include <algorithm>

#include "harness/core/error.h"
#include "harness/device/device_products.h"
#include "harness/device/ranks/connect_devices.h"
#include "harness/device/ranks/device_parts.h"
#include "kernels/elementwise/elementwise_cuda.h"

namespace kvarena::device {
namespace {

DeviceTask task(int64_t part, int64_t rows) {
  return {.part = static_cast<int32_t>(part), .rows = static_cast<int32_t>(rows)};
}

}  // namespace

DeviceDriver::DeviceDriver(RankDriver& ranks, DeviceWeights& weights) : ranks_(&ranks), weights_(&weights) {
  ranks.alone([&] {
    ranks.order_rendezvous();
    std::string reason;
    const auto nccl = find_nccl(reason);
    Transport met = connect_devices(ranks.channel(), nccl, reason);
    fallback_reason_ = std::move(met.fallback_reason);
    share_ = std::make_unique<DeviceShare>(ranks.channel().share(), std::move(met.exchange));
  });
  replies_.resize(static_cast<size_t>(share_->ranks()));
  const std::vector<DevicePart> parts = parts_of(weights);
  for (size_t part = 0; part < parts.size(); ++part) {
    std::visit([&](auto* one) { one->elsewhere = {.driver = this, .part = static_cast<int64_t>(part)}; }, parts[part]);
  }
}

void DeviceDriver::begin(const Pass& pass, bool may_be_given_up) {
  pass_ = pass;
  ahead_ = !may_be_given_up;
  if (!ahead_) return;
  std::vector<DeviceTask> tasks;
  add_layers(0, tasks);
  ranks_->alone([&] { announce(tasks); });
}

void DeviceDriver::add_layers(size_t layer, std::vector<DeviceTask>& tasks) const {
  const auto add = [&](const auto& part, int64_t rows) {
    if (rows > 0) tasks.push_back(task(part.elsewhere.part, rows));
  };
  for (; layer < static_cast<size_t>(pass_.layers); ++layer) {
    DeviceLayerWeights& w = weights_->layers[layer];
    for (const DevicePart& part : attention_parts(w)) std::visit([&](auto* one) { add(*one, pass_.rows); }, part);
    const auto* dense = std::get_if<DeviceDense>(&w.mlp);
    if (dense == nullptr) return;
    add(*dense, pass_.rows);
  }
  add(*weights_->lm_head, pass_.wanted);
}

void DeviceDriver::announce(const DeviceSparse& layer, std::span<const int64_t> visitors) {
  if (!ahead_) return;
  std::vector<DeviceTask> tasks;
  for (size_t expert = 0; expert < visitors.size(); ++expert) {
    if (visitors[expert] > 0) tasks.push_back(task(layer.experts[expert].elsewhere.part, visitors[expert]));
  }
  if (layer.shared) tasks.push_back(task(layer.shared->elsewhere.part, pass_.rows));
  const auto is_it = [&](const DeviceLayerWeights& w) { return std::get_if<DeviceSparse>(&w.mlp) == &layer; };
  const auto at = std::ranges::find_if(weights_->layers, is_it);
  add_layers(static_cast<size_t>(at - weights_->layers.begin()) + 1, tasks);
  ranks_->alone([&] { announce(tasks); });
}

void DeviceDriver::announce(std::span<const DeviceTask> tasks) {
  KVARENA_ASSERT(announced_.empty(), "the ranks wait for rows of another pass");
  ranks_->order_tasks(tasks);
  announced_.assign(tasks.begin(), tasks.end());
}

void DeviceDriver::give(int64_t part, int64_t rows, const float* x, int64_t count, kernels::CudaStream stream) {
  const DeviceTask next = task(part, rows);
  if (!ahead_) announce({&next, 1});
  KVARENA_ASSERT(!announced_.empty() && announced_.front() == next, "the ranks were told of something else");
  announced_.pop_front();
  std::vector<PeerBuffer> out;
  for (int64_t rank = 1; rank < share_->ranks(); ++rank) {
    out.push_back({.other = rank, .data = const_cast<float*>(x), .count = count});
  }
  share_->exchange().exchange(out, {}, stream);
}

void DeviceDriver::collect(const DeviceProjection& w, const float* x, int64_t rows, float* y, bool add,
                           kernels::CudaStream stream) {
  float* whole = add ? whole_.at_least(rows * w.out, moves_) : y;
  project_held(w, x, rows, whole + w.held.begin, {.x = w.matrix.k(), .y = w.out}, /*add=*/false, stream);
  std::vector<PeerBuffer> coming;
  for (int64_t rank = 1; rank < share_->ranks(); ++rank) {
    const int64_t count = rows * share_->of(rank).of(w.out).count();
    coming.push_back({.other = rank, .data = replies_[rank].at_least(count, moves_), .count = count});
  }
  share_->exchange().exchange({}, coming, stream);
  for (const PeerBuffer& reply : coming) share_->place(reply.other, reply.data, rows, w.out, whole, stream);
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
