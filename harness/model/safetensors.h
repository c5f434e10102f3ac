#pragma once
// The safetensors format: 8 bytes of header length, a JSON header, then the tensors' bytes without gaps.

#include <filesystem>
#include <memory>

#include "harness/model/checkpoint.h"

namespace kvarena {

/// One .safetensors file. Throws UserError naming file, tensor and what is wrong.
[[nodiscard]] std::unique_ptr<Checkpoint> open_safetensors(const std::filesystem::path& file);

/// All shards that model.safetensors.index.json names; each tensor must be in the shard that the index says.
[[nodiscard]] std::unique_ptr<Checkpoint> open_sharded_safetensors(const std::filesystem::path& index);

}  // namespace kvarena
