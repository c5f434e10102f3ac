#include "harness/device/device_offload.h"
#include "tests/support/computed_model.h"
#include "tests/support/host_families.h"
#include "tests/support/spread_layers.h"

namespace kvarena::testing {

Transformer computed_model(const ModelConfig& config, const RandomCheckpoint& checkpoint,
                           const TransformerOptions& options) {
  Transformer model(config, checkpoint, options);
  model.offload_to(std::make_unique<device::DeviceOffload>(
      device::DeviceModel(config, checkpoint, options, device::spread_layers(config.layers)), int64_t{1} << 30));
  return model;
}

bool computes(const std::string& architecture) { return !only_host_computes(architecture); }

}  // namespace kvarena::testing
