#pragma once
// The small random decoder as a folder in Hugging Face layout, for what opens models by path.

#include <filesystem>

#include "tests/support/tiny_model.h"

namespace kvarena::testing {

/// Writes all tensors of a checkpoint as safetensors (F32).
void write_weights(const std::filesystem::path& file, const RandomCheckpoint& checkpoint);

/// Writes config.json, model.safetensors (F32) and a tokenizer.json without merges: the model of tiny_model(seed).
void write_tiny_model(const std::filesystem::path& folder, uint64_t seed, int64_t layers = tiny_config().layers);

}  // namespace kvarena::testing
