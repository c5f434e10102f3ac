#pragma once
// The sizes of a model as `kvarena estimate --model` names it.

#include <string>

#include "harness/cost_model/model_shape.h"
#include "harness/model/config.h"

namespace kvarena::cli {

/// Sizes of an opened checkpoint.
[[nodiscard]] cost_model::ModelShape shape_of(const ModelConfig& config);

/// A name below configs/shapes, a file of one's own, or a checkpoint: a GGUF file or a folder with config.json. Throws
/// UserError.
[[nodiscard]] cost_model::ModelShape find_shape(const std::string& model);

}  // namespace kvarena::cli
