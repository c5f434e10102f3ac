#pragma once
// Keys as they were before their rotary rotation.

#include <ATen/core/Tensor.h>

#include "harness/method/layer_view.h"

namespace kvarena {

/// The view's keys without the model's rotation, [kv_heads, n, head_dim].
[[nodiscard]] at::Tensor unrotated_keys(const LayerView& layer);

}  // namespace kvarena
