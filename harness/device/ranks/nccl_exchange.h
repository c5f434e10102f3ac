#pragma once
// Rows that travel from device to device, by NCCL: queued on the stream, nobody waits.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "harness/device/ranks/exchange.h"
#include "harness/device/ranks/nccl_library.h"
#include "harness/model/ranks/channel.h"

namespace kvarena::device {

/// A rank that is gone leaves others on their streams for ever, where no limit of time reaches them. So a thread looks
/// at what is under way, and ends it when a rank is lost or does not answer: streams go on, with numbers that confirm()
/// refuses.
class NcclExchange final : public Exchange {
 public:
  /// All ranks at the same time, each with a device of its own and the same id. The channel, which knows who is lost,
  /// outlives this. Throws UserError.
  NcclExchange(std::shared_ptr<const NcclLibrary> library, const NcclId& id, RankChannel& channel,
               std::chrono::milliseconds answer = std::chrono::minutes(10));
  ~NcclExchange() override;
  NcclExchange(const NcclExchange&) = delete;
  NcclExchange& operator=(const NcclExchange&) = delete;

  void exchange(std::span<const PeerBuffer> out, std::span<const PeerBuffer> in, kernels::CudaStream stream) override;
  void confirm() override;

 private:
  void check(int result, const char* attempted) const;
  void queue(std::span<const PeerBuffer> out, std::span<const PeerBuffer> in, kernels::CudaStream stream);
  void abort(const std::string& why);
  void watch();
  /// Why what is under way will not arrive; empty while it may.
  [[nodiscard]] std::string trouble();

  std::shared_ptr<const NcclLibrary> library_;
  RankChannel* channel_;
  std::chrono::milliseconds answer_;

  std::mutex mutex_;          // of everything below
  ncclComm* comm_ = nullptr;  // null once it was ended
  std::condition_variable changed_;
  kernels::CudaMark last_;  // behind the last exchange
  std::chrono::steady_clock::time_point begun_;
  bool waiting_ = false;  // for last_
  bool ending_ = false;
  std::string failure_;
  std::thread watcher_;
};

}  // namespace kvarena::device
