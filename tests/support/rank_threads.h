#pragma once
// The ranks of a model as threads of the test, over whatever channel they are given, and a channel in memory.

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "harness/core/error.h"
#include "harness/model/ranks/server.h"

namespace kvarena::testing {

/// Messages on their way between threads.
class Mailroom {
 public:
  void put(int64_t from, int64_t to, std::span<const float> data) {
    const std::lock_guard lock(mutex_);
    boxes_[{from, to}].emplace_back(data.begin(), data.end());
    ++sent_[{from, to}];
    changed_.notify_all();
  }
  [[nodiscard]] int64_t sent(int64_t from, int64_t to) {
    const std::lock_guard lock(mutex_);
    return sent_[{from, to}];
  }
  void take(int64_t from, int64_t to, std::span<float> data) {
    std::unique_lock lock(mutex_);
    auto& box = boxes_[{from, to}];
    changed_.wait(lock, [&] { return !box.empty() || gone_[from]; });
    if (box.empty()) throw UserError("rank " + std::to_string(from) + " is gone");
    KVARENA_ASSERT(box.front().size() == data.size(), "a message of another length than expected");
    std::ranges::copy(box.front(), data.begin());
    box.pop_front();
  }
  void leave(int64_t rank) {
    const std::lock_guard lock(mutex_);
    gone_[rank] = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int64_t, int64_t>, std::deque<std::vector<float>>> boxes_;
  std::map<std::pair<int64_t, int64_t>, int64_t> sent_;
  std::map<int64_t, bool> gone_;
};

class MemoryChannel final : public RankChannel {
 public:
  MemoryChannel(std::shared_ptr<Mailroom> room, const Share& share) : room_(std::move(room)), share_(share) {}
  ~MemoryChannel() override { room_->leave(share_.rank); }
  [[nodiscard]] Share share() const override { return share_; }
  void meet() override {}
  [[nodiscard]] std::unique_ptr<Transfer> send(int64_t to, std::span<const float> data) override {
    room_->put(share_.rank, to, data);
    return std::make_unique<Done>();
  }
  [[nodiscard]] std::unique_ptr<Transfer> receive(int64_t from, std::span<float> data, WaitLimit) override {
    return std::make_unique<Awaited>([this, from, data] { room_->take(from, share_.rank, data); });
  }

 private:
  struct Done final : Transfer {
    void wait() override {}
  };
  struct Awaited final : Transfer {
    explicit Awaited(std::function<void()> what) : take(std::move(what)) {}
    void wait() override { take(); }
    std::function<void()> take;
  };

  std::shared_ptr<Mailroom> room_;
  Share share_;
};

using ChannelMaker = std::function<std::unique_ptr<RankChannel>(const Share& share)>;

inline ChannelMaker memory_channels(const std::shared_ptr<Mailroom>& room = std::make_shared<Mailroom>()) {
  return [room](const Share& share) { return std::make_unique<MemoryChannel>(room, share); };
}

using DeviceMaker = std::function<std::unique_ptr<RankDevice>(const Share& share)>;

/// Ranks 1 .. ranks-1, each in its thread with its own `make_checkpoint()`, and a device when there is somebody to make
/// it; they end with the driver's channel.
template <class MakeCheckpoint>
class RankThreads {
 public:
  RankThreads(int64_t ranks, const ChannelMaker& make_channel, const ModelConfig& config, kernels::DType dtype,
              MakeCheckpoint make_checkpoint, const DeviceMaker& make_device = nullptr)
      : failures_(static_cast<size_t>(ranks)) {
    for (int64_t rank = 1; rank < ranks; ++rank) {
      threads_.emplace_back([=, this] {
        try {
          const Share share{.rank = rank, .ranks = ranks};
          const auto checkpoint = make_checkpoint();
          const auto channel = make_channel(share);
          const auto device = make_device ? make_device(share) : nullptr;
          serve_rank(config, checkpoint, dtype, *channel, device.get());
        } catch (const std::exception& error) {
          failures_[rank] = error.what();
        }
      });
    }
  }
  ~RankThreads() { join(); }
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  /// Why each rank ended, after join(); empty when the driver ended it.
  [[nodiscard]] const std::vector<std::string>& failures() const { return failures_; }

 private:
  std::vector<std::string> failures_;
  std::vector<std::thread> threads_;
};

}  // namespace kvarena::testing
