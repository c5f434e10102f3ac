#pragma once
// A small random decoder held in memory, for tests of everything above the kernels.

#include <string>
#include <vector>

#include "harness/model/config.h"
#include "harness/model/transformer.h"
#include "tests/support/random_checkpoint.h"

namespace kvarena::testing {

/// Tensors of a Llama of this config.
TensorShapes llama_tensors(const ModelConfig& config);

/// Two kv heads for four query heads, three layers.
ModelConfig tiny_config();

Transformer tiny_model(uint64_t seed = 1, TransformerOptions options = {}, const ModelConfig& config = tiny_config());

/// A prompt of `n` tokens that repeats itself here and there.
std::vector<int32_t> tiny_prompt(int64_t n, uint64_t seed = 7);

}  // namespace kvarena::testing
