#pragma once
// Models for tests that hold wherever passes are computed: each program that runs such tests says where that is.

#include "harness/model/transformer.h"
#include "tests/support/random_checkpoint.h"

namespace kvarena::testing {

/// On the processor (computed_here.cpp) or on a device (computed_on_device.cpp).
Transformer computed_model(const ModelConfig& config, const RandomCheckpoint& checkpoint,
                           const TransformerOptions& options = {});
/// Whether models of this family are computed there.
bool computes(const std::string& architecture);

}  // namespace kvarena::testing
