#include "harness/device/open_device.h"

#include "harness/core/error.h"
#include "harness/device/device_offload.h"

namespace kvarena::device {

std::unique_ptr<Offload> open_device(const std::string& place, const ModelConfig& config, const Checkpoint& checkpoint,
                                     const TransformerOptions& options) {
  if (const std::string reason = kernels::cuda_absent(); !reason.empty()) {
    fail({.place = place, .found = reason, .expected = "a CUDA device", .action = "\"cpu\" is always there"});
  }
  try {
    return std::make_unique<DeviceOffload>(DeviceModel(config, checkpoint, options));
  } catch (const UserError&) {
    throw;
  } catch (const std::runtime_error& error) {  // of CUDA
    fail({.place = place,
          .found = error.what(),
          .expected = config.name + " in the device's memory",
          .action = "smaller weights (\"bf16\") or a smaller model may fit"});
  }
}

}  // namespace kvarena::device
