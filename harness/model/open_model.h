#pragma once
// A model on disk, in any of the known layouts.

#include <filesystem>
#include <memory>
#include <vector>

#include "harness/model/chat_template.h"
#include "harness/model/checkpoint.h"
#include "harness/model/config.h"
#include "harness/model/tokenizer/tokenizer.h"

namespace kvarena {

struct OpenedModel {
  ModelConfig config;
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Tokenizer> tokenizer;
  ChatTemplate chat_template;
  /// Everything that was read and so decides the model's numbers: weights, config, vocabulary, template.
  std::vector<std::filesystem::path> files;
};

/// Opens a folder in Hugging Face layout (config.json, safetensors, tokenizer.json), a folder with one .gguf file, or
/// a .gguf file; or a folder with a low-rank adapter (adapter_config.json), over the model that it names or, where it
/// is not empty, `base`, both as find_model() takes them. Reads headers, the vocabulary and adapters, no weights.
/// Throws UserError naming the file and what is wrong.
[[nodiscard]] OpenedModel open_model(const std::filesystem::path& path, const std::string& base = {});

/// `chosen`, a name from a model's config, or the checkpoint's own template when it is empty.
[[nodiscard]] ChatTemplate choose_chat_template(const OpenedModel& model, const std::string& chosen);

}  // namespace kvarena
