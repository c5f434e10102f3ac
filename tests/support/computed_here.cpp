#include "tests/support/computed_model.h"

namespace kvarena::testing {

Transformer computed_model(const ModelConfig& config, const RandomCheckpoint& checkpoint,
                           const TransformerOptions& options) {
  return {config, checkpoint, options};
}

bool computes(const std::string& /*architecture*/) { return true; }

}  // namespace kvarena::testing
