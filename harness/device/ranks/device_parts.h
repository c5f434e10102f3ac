#pragma once
// Matrices that the devices of a model's ranks compute in shares.

#include <variant>
#include <vector>

#include "harness/device/device_weights.h"

namespace kvarena::device {

using DevicePart = std::variant<DeviceProjection*, DeviceDense*>;

/// The parts of a layer's attention, in the order in which a pass computes them. Matrices of a latent's heads, which
/// stand between rows and attention, are the driver's alone, as are the router and the rows of the embedding.
[[nodiscard]] std::vector<DevicePart> attention_parts(DeviceLayerWeights& layer);

/// All of the model, in an order that ranks have in common: a part is called by its place. Valid as long as the weights
/// stay where they are.
[[nodiscard]] std::vector<DevicePart> parts_of(DeviceWeights& weights);

}  // namespace kvarena::device
