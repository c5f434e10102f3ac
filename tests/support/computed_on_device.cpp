#include <algorithm>
#include <array>

#include "harness/device/device_offload.h"
#include "tests/support/computed_model.h"
#include "tests/support/spread_layers.h"

namespace kvarena::testing {

Transformer computed_model(const ModelConfig& config, const RandomCheckpoint& checkpoint,
                           const TransformerOptions& options) {
  Transformer model(config, checkpoint, options);
  model.offload_to(std::make_unique<device::DeviceOffload>(
      device::DeviceModel(config, checkpoint, options, device::spread_layers(config.layers)), int64_t{1} << 30));
  return model;
}

bool computes(const std::string& architecture) {
  constexpr std::array kOnHost = {"gemma3_text", "glm4",  "gpt_oss", "granite",
                                  "llama4_text", "olmo2", "phi3",    "smollm3"};
  return std::ranges::find(kOnHost, architecture) == kOnHost.end();
}

}  // namespace kvarena::testing
