#include "harness/model/ranks/server.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "harness/core/error.h"
#include "harness/model/products.h"
#include "harness/model/ranks/parts.h"

namespace kvarena {
namespace {

std::span<float> floats(Workspace& of, int64_t count) { return {of.at_least(count), static_cast<size_t>(count)}; }

class RankServer {
 public:
  RankServer(RankChannel& channel, ModelWeights& weights, RankDevice* device)
      : channel_(&channel), device_(device), share_(channel.share()), parts_(parts_of(weights)) {
    order_floats_ = order_floats(parts_, share_.ranks);
    inner_.resize(static_cast<size_t>(share_.ranks));
  }

  void run() {
    const std::span<float> message = floats(message_, order_floats_);
    while (true) {
      channel_->receive(0, message, WaitLimit::idle)->wait();
      const auto order = read_head<Order>(message);
      if (order.work == Order::Work::stop) return;
      const std::span<float> input = take(input_floats(parts_, order, share_), message.subspan(kOrderHead));
      if (order.work == Order::Work::connect_devices || order.work == Order::Work::device_products) {
        on_device(order, input);
      } else {
        on_processor(order, input);
      }
    }
  }

 private:
  /// An order's input: in its own message when it is not too large for that.
  [[nodiscard]] std::span<float> take(int64_t size, std::span<float> inside) {
    if (size <= std::ssize(inside)) return inside.first(static_cast<size_t>(size));
    const std::span<float> input = floats(input_, size);
    channel_->receive(0, input)->wait();
    return input;
  }

  void on_device(const Order& order, std::span<const float> input) {
    KVARENA_ASSERT(device_ != nullptr, "the driver has a device, and this rank has none");
    if (order.work == Order::Work::connect_devices) return device_->meet(*channel_);
    std::vector<DeviceTask> tasks(static_cast<size_t>(order.rows));
    std::memcpy(static_cast<void*>(tasks.data()), input.data(), input.size_bytes());
    for (const DeviceTask& task : tasks) device_->compute(task.part, task.rows);
  }

  void on_processor(const Order& order, std::span<const float> input) {
    if (order.work == Order::Work::read) {
      read(parts_[order.part], {reinterpret_cast<const int32_t*>(input.data()), static_cast<size_t>(order.rows)});
    } else {
      std::visit([&](auto* part) { compute(*part, input.data(), order.rows); }, parts_[order.part]);
    }
    for (const auto& one : sending_) one->wait();
    sending_.clear();
  }

  void reply(int64_t count) { sending_.push_back(channel_->send(0, floats(reply_, count))); }

  void read(const Part& part, std::span<const int32_t> numbers) {
    const RowRange held = held_rows(part, share_);
    const auto count = std::ranges::count_if(numbers, [&](int32_t row) { return held.holds(row); });
    float* out = reply_.at_least(count * columns(part));
    for (const int32_t row : numbers) {
      if (!held.holds(row)) continue;
      read_row(part, row, out);
      out += columns(part);
    }
    reply(count * columns(part));
  }

  void compute(const Projection& w, const float* x, int64_t rows) {
    const int64_t held = w.held.count();
    project_held(w, x, rows, w.matrix.k(), reply_.at_least(rows * held), held);
    reply(rows * held);
  }

  void compute(const HeadProjections& w, const float* x, int64_t rows) {
    const int64_t held = w.held.count();
    float* y = reply_.at_least(rows * held * w.n);
    project_held(w, {.x = x, .rows = rows, .stride = held * w.k, .head_stride = w.k}, y, held * w.n);
    reply(rows * held * w.n);
  }

  void compute(const DenseFeedForward& weights, const float* x, int64_t rows) {
    const int64_t size = weights.down.matrix.k();
    std::vector<std::unique_ptr<Transfer>> receiving;
    for (int64_t i = 0; i < share_.ranks; ++i) {
      if (i == share_.rank) continue;
      receiving.push_back(channel_->receive(i, floats(inner_[i], rows * of(i, size).count())));
    }
    const std::span<float> own = floats(inner_[share_.rank], rows * of(share_.rank, size).count());
    gate_held(weights, x, rows, weights.gate_up.matrix.k(), own.data(), gates_);
    for (int64_t i = 0; i < share_.ranks; ++i) {
      if (i != share_.rank) sending_.push_back(channel_->send(i, own));
    }
    for (const auto& one : receiving) one->wait();
    float* whole = whole_inner_.at_least(rows * size);
    for (int64_t i = 0; i < share_.ranks; ++i) {
      const RowRange place = of(i, size);
      const float* part = inner_[i].at_least(0);
      for (int64_t r = 0; r < rows; ++r) {
        std::copy_n(part + r * place.count(), place.count(), whole + r * size + place.begin);
      }
    }
    const int64_t held = weights.down.held.count();
    project_held(weights.down, whole, rows, size, reply_.at_least(rows * held), held);
    reply(rows * held);
  }

  [[nodiscard]] RowRange of(int64_t rank, int64_t n) const { return Share{.rank = rank, .ranks = share_.ranks}.of(n); }

  RankChannel* channel_;
  RankDevice* device_;  // or null
  Share share_;
  std::vector<Part> parts_;
  int64_t order_floats_ = 0;
  // Memory of messages under way outlives the transfers declared after it.
  Workspace message_;
  Workspace input_;
  Workspace gates_;
  std::vector<Workspace> inner_;  // [ranks]
  Workspace whole_inner_;
  Workspace reply_;
  std::vector<std::unique_ptr<Transfer>> sending_;
};

}  // namespace

void serve_rank(const ModelConfig& config, const Checkpoint& checkpoint, kernels::DType dtype, RankChannel& channel,
                RankDevice* device) {
  ModelWeights weights = load_weights(config, checkpoint, dtype, channel.share());
  const Introduction self = introduce(channel.share(), weights, fingerprint_of(checkpoint));
  channel.meet();
  send_record(channel, 0, self);
  RankServer(channel, weights, device).run();
}

}  // namespace kvarena
