#include "harness/device/open_device.h"

#include <fmt/format.h>

#include <cstdio>
#include <functional>

#include "harness/core/error.h"
#include "harness/device/device_offload.h"
#include "harness/device/ranks/device_rank.h"

namespace kvarena::device {
namespace {

void require_device(const std::string& place) {
  const std::string reason = kernels::cuda_absent();
  if (reason.empty()) return;
  fail({.place = place, .found = reason, .expected = "a CUDA device", .action = "\"cpu\" is always there"});
}

template <class Make>
auto fitted(const std::string& place, const ModelConfig& config, const Make& make) {
  try {
    return make();
  } catch (const UserError&) {
    throw;
  } catch (const std::runtime_error& error) {  // of CUDA
    fail({.place = place,
          .found = error.what(),
          .expected = config.name + " in the device's memory",
          .action = "smaller weights (\"bf16\"), a smaller model or more ranks may fit"});
  }
}

}  // namespace

std::unique_ptr<Offload> open_device(const std::string& place, const ModelConfig& config, const Checkpoint& checkpoint,
                                     const TransformerOptions& options, RankDriver* ranks) {
  require_device(place);
  auto device = fitted(
      place, config, [&] { return std::make_unique<DeviceOffload>(DeviceModel(config, checkpoint, options, ranks)); });
  if (const std::string fallback_reason = device->model().fallback_reason(); !fallback_reason.empty()) {
    fmt::print(stderr, "note: {}: rows go from rank to rank by way of the hosts: {}\n", place, fallback_reason);
  }
  return device;
}

std::unique_ptr<RankDevice> open_rank_device(const ModelConfig& config, const Checkpoint& checkpoint,
                                             kernels::DType dtype, const Share& share) {
  const std::string place = "the rank's device";
  require_device(place);
  return fitted(place, config, [&] {
    kernels::cuda_use_device(share.rank % kernels::cuda_devices());
    return std::make_unique<DeviceRank>(config, checkpoint, dtype, share);
  });
}

}  // namespace kvarena::device
