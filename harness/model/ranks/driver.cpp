#include "harness/model/ranks/driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "harness/core/error.h"

namespace kvarena {
namespace {

std::span<float> floats(Workspace& of, int64_t count) { return {of.at_least(count), static_cast<size_t>(count)}; }

/// The rows of x [rows, columns], closed up.
void copy_rows(const float* x, int64_t rows, int64_t stride, int64_t columns, float* to) {
  for (int64_t r = 0; r < rows; ++r) std::copy_n(x + r * stride, columns, to + r * columns);
}

[[noreturn]] void refuse(int64_t rank, int64_t ranks, const std::string& found, const std::string& expected) {
  fail({.place = fmt::format("rank {} of {}", rank, ranks),
        .found = found,
        .expected = expected,
        .action = "start every rank with the same program, checkpoint and number of ranks"});
}

}  // namespace

RankDriver::RankDriver(std::unique_ptr<RankChannel> channel, ModelWeights& weights, const std::string& fingerprint)
    : channel_(std::move(channel)),
      ranks_(channel_->share().ranks),
      parts_(parts_of(weights)),
      orders_(static_cast<size_t>(ranks_)),
      inputs_(static_cast<size_t>(ranks_)),
      inner_(static_cast<size_t>(ranks_)),
      replies_(static_cast<size_t>(ranks_)) {
  KVARENA_ASSERT(channel_->share().rank == 0, "the driver is rank 0");
  order_floats_ = order_floats(parts_, ranks_);
  channel_->meet();
  greet(weights, fingerprint);
  for (size_t part = 0; part < parts_.size(); ++part) {
    std::visit([&](auto* one) { one->elsewhere = {.driver = this, .part = static_cast<int64_t>(part)}; }, parts_[part]);
  }
}

RankDriver::~RankDriver() {
  if (!failure_.empty()) return;
  try {
    order({.work = Order::Work::stop}, nullptr);
    finish_sending();
  } catch (const std::exception&) {
    return;  // one that is gone needs no order to go
  }
}

void RankDriver::greet(ModelWeights& weights, const std::string& fingerprint) {
  const Introduction self = introduce(channel_->share(), weights, fingerprint);
  held_bytes_ = {self.held_bytes};
  for (int64_t i = 1; i < ranks_; ++i) {
    const auto other = receive_record<Introduction>(*channel_, i);
    if (other.version != self.version) refuse(i, ranks_, "another program", "this one");
    if (other.rank != i || other.ranks != ranks_) {
      refuse(i, ranks_, fmt::format("the share of rank {} of {}", other.rank, other.ranks), "its own");
    }
    if (!std::ranges::equal(other.fingerprint, self.fingerprint)) {
      refuse(i, ranks_, fmt::format("a checkpoint {}", std::string(other.fingerprint, 12)),
             fmt::format("the driver's, {}", fingerprint.substr(0, 12)));
    }
    if (other.parts != self.parts || other.whole_bytes != self.whole_bytes) {
      refuse(i, ranks_, fmt::format("{} matrices of {} bytes", other.parts, other.whole_bytes),
             fmt::format("{} of {}", self.parts, self.whole_bytes));
    }
    held_bytes_.push_back(other.held_bytes);
  }
}

void RankDriver::alone(const std::function<void()>& work) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw UserError(failure_);
  try {
    work();
    finish_sending();
  } catch (const std::exception& error) {
    failure_ = error.what();
    receiving_.clear();
    sending_.clear();
    throw;
  }
}

std::string RankDriver::lost() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void RankDriver::order(const Order& order, const Input& input) {
  for (int64_t i = 1; i < ranks_; ++i) {
    const std::span<float> message = floats(orders_[i], order_floats_);
    write_head(order, message);
    const int64_t size = input_floats(parts_, order, rank(i));
    const bool inside = size <= order_floats_ - kOrderHead;
    const std::span<float> own = inside ? message.subspan(kOrderHead, size) : floats(inputs_[i], size);
    if (size > 0) input(rank(i), own.data());
    sending_.push_back(channel_->send(i, message));
    if (!inside) sending_.push_back(channel_->send(i, own));
  }
}

void RankDriver::order_rendezvous() { order({.work = Order::Work::connect_devices}, nullptr); }

void RankDriver::order_tasks(std::span<const DeviceTask> tasks) {
  order({.work = Order::Work::device_products, .rows = std::ssize(tasks)},
        [&](const Share&, float* input) { std::memcpy(input, tasks.data(), tasks.size_bytes()); });
}

void RankDriver::expect_replies(int64_t rows, const std::function<int64_t(const Share& from)>& columns) {
  for (int64_t i = 1; i < ranks_; ++i) {
    receiving_.push_back(channel_->receive(i, floats(replies_[i], rows * columns(rank(i)))));
  }
}

void RankDriver::place_replies(int64_t rows, int64_t width, const std::function<RowRange(const Share& from)>& columns,
                               float* y) {
  for (const auto& reply : receiving_) reply->wait();
  receiving_.clear();
  for (int64_t i = 1; i < ranks_; ++i) {
    const RowRange place = columns(rank(i));
    const float* reply = replies_[i].at_least(0);
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(reply + r * place.count(), place.count(), y + r * width + place.begin);
    }
  }
}

void RankDriver::finish_sending() {
  for (const auto& one : sending_) one->wait();
  sending_.clear();
}

void RankDriver::project(const Projection& w, const float* x, int64_t rows, int64_t x_stride, float* y) {
  if (rows == 0) return;
  alone([&] {
    const auto columns = [&](const Share& of) { return of.of(w.out); };
    order({.work = Order::Work::product, .part = w.elsewhere.part, .rows = rows},
          [&](const Share&, float* input) { copy_rows(x, rows, x_stride, w.matrix.k(), input); });
    expect_replies(rows, [&](const Share& from) { return columns(from).count(); });
    project_held(w, x, rows, x_stride, y + w.held.begin, w.out);
    place_replies(rows, w.out, columns, y);
  });
}

void RankDriver::project_heads(const HeadProjections& w, const HeadRows& in, float* y) {
  alone([&] {
    const auto columns = [&](const Share& of) {
      const RowRange held = of.of(w.heads, 1);
      return RowRange{.begin = held.begin * w.n, .end = held.end * w.n};
    };
    order({.work = Order::Work::product, .part = w.elsewhere.part, .rows = in.rows},
          [&](const Share& to, float* input) {
            const RowRange held = to.of(w.heads, 1);
            for (int64_t r = 0; r < in.rows; ++r) {
              copy_rows(in.x + r * in.stride + held.begin * in.head_stride, held.count(), in.head_stride, w.k,
                        input + r * held.count() * w.k);
            }
          });
    expect_replies(in.rows, [&](const Share& from) { return columns(from).count(); });
    project_held(w, in, y, w.heads * w.n);
    place_replies(in.rows, w.heads * w.n, columns, y);
  });
}

/// The inner numbers go from every rank to every other, since each output row needs all of them.
void RankDriver::feed_forward(const DenseFeedForward& weights, const float* in, int64_t rows, float* out) {
  alone([&] {
    const int64_t hidden = weights.gate_up.matrix.k();
    const int64_t size = weights.down.matrix.k();
    const auto inner_of = [&](const Share& of) { return of.of(size); };
    order({.work = Order::Work::product, .part = weights.elsewhere.part, .rows = rows},
          [&](const Share&, float* input) { std::copy_n(in, rows * hidden, input); });
    expect_replies(rows, [&](const Share& from) { return inner_of(from).count(); });
    const std::span<float> own = floats(inner_[0], rows * weights.gate_up.held.count());
    gate_held(weights, in, rows, hidden, own.data(), gates_);
    for (int64_t i = 1; i < ranks_; ++i) sending_.push_back(channel_->send(i, own));
    float* whole = whole_inner_.at_least(rows * size);
    place_replies(rows, size, inner_of, whole);
    for (int64_t r = 0; r < rows; ++r) {
      const RowRange& held = weights.gate_up.held;
      std::copy_n(own.data() + r * held.count(), held.count(), whole + r * size + held.begin);
    }
    const auto columns = [&](const Share& of) { return of.of(weights.down.out); };
    expect_replies(rows, [&](const Share& from) { return columns(from).count(); });
    project_held(weights.down, whole, rows, size, out + weights.down.held.begin, weights.down.out);
    place_replies(rows, weights.down.out, columns, out);
  });
}

void RankDriver::read_rows(int64_t part, std::span<const int32_t> numbers, float* out) {
  alone([&] {
    const Part& asked = parts_[part];
    const int64_t width = columns(asked);
    const auto here = [&](const Share& of, int32_t row) { return held_rows(asked, of).holds(row); };
    order({.work = Order::Work::read, .part = part, .rows = static_cast<int64_t>(numbers.size())},
          [&](const Share&, float* input) { std::memcpy(input, numbers.data(), numbers.size_bytes()); });
    for (int64_t i = 1; i < ranks_; ++i) {
      const auto count = std::ranges::count_if(numbers, [&](int32_t row) { return here(rank(i), row); });
      receiving_.push_back(channel_->receive(i, floats(replies_[i], count * width)));
    }
    for (size_t n = 0; n < numbers.size(); ++n) {
      if (here(rank(0), numbers[n])) read_row(asked, numbers[n], out + static_cast<int64_t>(n) * width);
    }
    for (const auto& reply : receiving_) reply->wait();
    receiving_.clear();
    for (int64_t i = 1; i < ranks_; ++i) {
      const float* row = replies_[i].at_least(0);
      for (size_t n = 0; n < numbers.size(); ++n) {
        if (!here(rank(i), numbers[n])) continue;
        std::copy_n(row, width, out + static_cast<int64_t>(n) * width);
        row += width;
      }
    }
  });
}

}  // namespace kvarena
