#pragma once
// A view's plan as a selection for the device.

#include "harness/cache/layer_cache.h"
#include "harness/device/host_selector.h"

namespace kvarena::device {

/// Reads the plan of a layer's view for its newest queries; everything where there is no view. What the plan names is
/// on the device (the layer's runs and the segments in front of them) or lies on the host as runs in the cache's type.
/// The selection points into the view and into what that refers to.
[[nodiscard]] AttentionSelection selection_of(const LayerCache& cache, const LayerQueries& queries);

}  // namespace kvarena::device
