#include "harness/cli/device_transfers.h"

#include <algorithm>
#include <functional>

#include "harness/core/error.h"
#include "harness/storage/device_tiers.h"

namespace kvarena::cli {

DeviceTransferTimes time_device_transfers(int64_t rows, int64_t chosen, int64_t row_bytes, int64_t repeats) {
  const std::string absent = kernels::cuda_absent();
  if (!absent.empty()) {
    fail({.place = "--device",
          .found = absent,
          .expected = "a CUDA device",
          .action = "leave --device away to measure this machine's memory or an emulated link"});
  }
  const auto ledger = std::make_shared<MemoryLedger>();
  storage::PinnedStorage host(storage::kUnlimited);
  storage::DeviceStorage device(storage::kUnlimited);
  const auto from = storage::placed(host.allocate(ledger, rows * row_bytes));
  const auto to = storage::placed(device.allocate(ledger, rows * row_bytes));
  storage::Bus bus;
  const auto median = [&](const std::function<storage::Transfer()>& move) {
    std::vector<double> seconds;
    move().wait();
    for (int64_t i = 0; i < repeats; ++i) {
      storage::Transfer transfer = move();
      transfer.wait();
      seconds.push_back(transfer.link_seconds());
    }
    std::ranges::nth_element(seconds, seconds.begin() + std::ssize(seconds) / 2);
    return seconds[seconds.size() / 2];
  };
  const auto contiguous = [&](int64_t count) {
    return median([&, count] { return bus.copy(from, to, {{.from = 0, .to = 0, .bytes = count * row_bytes}}); });
  };
  std::vector<int32_t> scattered;
  for (int64_t i = 0; i < chosen; ++i) scattered.push_back(static_cast<int32_t>(i * (rows / chosen)));
  return {.all = contiguous(rows), .chosen = contiguous(chosen), .gathered = median([&] {
                                                                   return bus.gather(from, to, scattered, row_bytes);
                                                                 })};
}

}  // namespace kvarena::cli
