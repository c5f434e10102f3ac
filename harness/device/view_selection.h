#pragma once
// What a view shows, as a choice for the device.

#include "harness/cache/layer_cache.h"
#include "harness/device/host_selector.h"

namespace kvarena::device {

/// Of a layer's view, for its newest `q_len` queries; nothing where there is none. It points into the view and into
/// what that refers to. The view must be one that HookAccess::selection, ::replacement or ::view tells of.
[[nodiscard]] AttentionSelection choice_of(const LayerCache& cache, int64_t q_len);

}  // namespace kvarena::device
