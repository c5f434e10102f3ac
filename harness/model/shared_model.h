#pragma once
// Checkpoints that help the target (drafters, speculative models): their weights are read once for all that name them.

#include <filesystem>
#include <memory>

#include "harness/model/tokenizer/tokenizer.h"
#include "harness/model/transformer.h"

namespace kvarena {

struct SharedModel {
  Transformer transformer;
  std::unique_ptr<Tokenizer> tokenizer;
};

/// The model at `path` in these stored forms. Alive as long as somebody holds it, and read again after that. Throws
/// UserError when it is absent. Requests take turns with forward().
[[nodiscard]] std::shared_ptr<SharedModel> shared_model(const std::filesystem::path& path,
                                                        const TransformerOptions& options);

}  // namespace kvarena
