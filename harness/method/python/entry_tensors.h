#pragma once
// Tensors of kvarena.Entries (python/kvarena/methods.py) that scorers, codecs and retrievers lend alike.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "harness/method/model_facts.h"

namespace kvarena {

/// Positions of the entries of each head, as many in all: [kv_heads, n], int64.
[[nodiscard]] at::Tensor positions_tensor(const std::vector<std::vector<int32_t>>& heads);

/// "rotation", radians a position of channel pairs [head_dim / 2], or "rotation_magnitude" [1]; float64.
[[nodiscard]] at::Tensor rotation_tensor(const std::string& what, const Rotation& rotation);

}  // namespace kvarena
