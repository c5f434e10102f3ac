#pragma once
// Devices of a test's model: tests over one device hold over several.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cuda/device.h"

namespace kvarena::device {

/// [layers], spread over all devices that there are.
inline std::vector<int64_t> spread_layers(int64_t layers) {
  const int64_t count = std::min(layers, kernels::cuda_devices());
  std::vector<int64_t> devices;
  for (int64_t layer = 0; layer < layers; ++layer) devices.push_back(layer * count / layers);
  return devices;
}

}  // namespace kvarena::device
