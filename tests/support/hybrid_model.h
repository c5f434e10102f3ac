#pragma once
// A small random decoder whose layers take turns: one with a recurrent state, one that attends.

#include "tests/support/tiny_model.h"

namespace kvarena::testing {

/// The tiny model's sizes, with as many layers that hold entries.
ModelConfig hybrid_config();

/// Tensors of a Qwen3.5 of this config.
TensorShapes hybrid_tensors(const ModelConfig& config);

Transformer hybrid_model(uint64_t seed = 1, TransformerOptions options = {});

}  // namespace kvarena::testing
