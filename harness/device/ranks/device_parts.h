#pragma once
// What the devices of a model's ranks compute in shares.

#include <variant>
#include <vector>

#include "harness/device/device_weights.h"

namespace kvarena::device {

using DevicePart = std::variant<DeviceProjection*, DeviceDense*>;

/// All of them, in an order that ranks have in common: a part is called by its place. Valid as long as the weights stay
/// where they are. What stands between rows and attention (matrices of a latent's heads), the router and the rows of
/// the embedding are the driver's alone.
[[nodiscard]] std::vector<DevicePart> parts_of(DeviceWeights& weights);

}  // namespace kvarena::device
