#pragma once
// The safetensors format: 8 bytes of header length, a JSON header, then the tensors' bytes without gaps.

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/model/checkpoint.h"

namespace kvarena {

/// One .safetensors file. Throws UserError naming file, tensor and what is wrong.
[[nodiscard]] std::unique_ptr<Checkpoint> open_safetensors(const std::filesystem::path& file);

/// All shards that model.safetensors.index.json names; each tensor must be in the shard that the index says.
[[nodiscard]] std::unique_ptr<Checkpoint> open_sharded_safetensors(const std::filesystem::path& index);

/// The free text of a file's header ("__metadata__"); empty when there is none. Same errors as open_safetensors.
[[nodiscard]] std::map<std::string, std::string> safetensors_metadata(const std::filesystem::path& file);

/// A tensor to write, as f32 or rounded to bf16.
struct TensorToWrite {
  std::string name;
  std::vector<int64_t> shape;
  std::span<const float> values;
  bool bf16 = false;
};

/// Writes a file, all or nothing; equal arguments give equal bytes. Throws UserError naming the path.
void write_safetensors(const std::filesystem::path& file, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace kvarena
