#include "harness/model/open_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/home.h"
#include "harness/model/adapted_checkpoint.h"
#include "harness/model/architectures/architecture.h"
#include "harness/model/gguf.h"
#include "harness/model/open_model_elsewhere.h"

namespace kvarena {
namespace {

using nlohmann::json;

std::string text_of(const Tokenizer& tokenizer, std::optional<int32_t> id) {
  return id ? tokenizer.token_text(*id) : std::string();
}

/// Newer checkpoints have chat_template.jinja, others a key of tokenizer_config.json: a text, or a list of named ones.
std::string read_jinja(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder / "chat_template.jinja")) return read_file(folder / "chat_template.jinja");
  const std::filesystem::path file = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(file)) return {};
  try {
    const json config = json::parse(read_file(file));
    const json found = config.value("chat_template", json());
    if (found.is_string()) return found.get<std::string>();
    if (found.is_array()) {
      for (const json& named : found) {
        if (named.value("name", "") == "default") return named.value("template", "");
      }
    }
    return {};
  } catch (const json::exception& error) {
    fail({.place = file.string(), .found = error.what(), .expected = "a tokenizer's settings in JSON"});
  }
}

/// Layers that tensors are there for.
int64_t stored_layers(const ModelConfig& config, const Checkpoint& checkpoint) {
  const std::string_view prefix = architecture_of(config).tensors.layer;
  int64_t layers = 0;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    int64_t layer = 0;
    if (!tensor.name.starts_with(prefix)) continue;
    const char* begin = tensor.name.data() + prefix.size();
    const auto [end, error] = std::from_chars(begin, tensor.name.data() + tensor.name.size(), layer);
    if (error == std::errc() && layer >= 0 && layer < INT64_MAX) layers = std::max(layers, layer + 1);
  }
  return layers;
}

/// Throws UserError when the file's description has another number of layers than the file. `predicting`: layers that
/// follow the described ones and draft tokens (DeepSeek-V3), which are not read.
void check_layers(const ModelConfig& config, const Checkpoint& checkpoint, int64_t predicting) {
  const int64_t stored = stored_layers(config, checkpoint);
  if (stored == config.layers || stored == config.layers + predicting) return;
  fail({.place = checkpoint.path().string(),
        .found = fmt::format("tensors of {} layers", stored),
        .expected = fmt::format("those of {}, as the model is described", config.layers),
        .action = "bring the description that belongs to these weights"});
}

OpenedModel open_gguf(const std::filesystem::path& path) {
  const auto file = std::make_shared<const GgufFile>(path);
  OpenedModel model;
  model.config = read_gguf_config(*file);
  model.tokenizer = load_gguf_tokenizer(*file);
  const SpecialIds& ids = model.tokenizer->special_ids();
  model.chat_template = ChatTemplate::from_text(file->find_string("tokenizer.chat_template").value_or(""),
                                                text_of(*model.tokenizer, ids.bos), text_of(*model.tokenizer, ids.eos));
  model.checkpoint = open_gguf_checkpoint(file);
  check_layers(model.config, *model.checkpoint, 0);
  model.files = model.checkpoint->files();
  return model;
}

bool has_weights(const std::filesystem::path& folder) {
  return std::ranges::any_of(std::filesystem::directory_iterator(folder), [](const auto& entry) {
    return entry.path().extension() == ".safetensors" || entry.path().extension() == ".gguf";
  });
}

OpenedModel open_folder(const std::filesystem::path& folder, bool weights) {
  OpenedModel model;
  model.config = read_hf_config(folder / "config.json");
  const std::filesystem::path tokenizer = folder / "tokenizer.json";
  if (!std::filesystem::exists(tokenizer)) {
    fail({.place = folder.string(),
          .found = "no tokenizer.json",
          .expected = "one beside config.json",
          .action = "Load the tokenizer with transformers and save it as a fast tokenizer."});
  }
  model.tokenizer = load_tokenizer(tokenizer);
  const SpecialIds& ids = model.tokenizer->special_ids();
  model.chat_template = ChatTemplate::from_text(read_jinja(folder), text_of(*model.tokenizer, ids.bos),
                                                text_of(*model.tokenizer, ids.eos));
  if (weights) {
    model.checkpoint = open_checkpoint(folder);
    check_layers(model.config, *model.checkpoint,
                 JsonSection(folder / "config.json").integer("num_nextn_predict_layers", 0));
    model.files = model.checkpoint->files();
  }
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
    if (std::filesystem::exists(folder / name)) model.files.push_back(folder / name);
  }
  return model;
}

OpenedModel open_adapter(const std::filesystem::path& folder, const std::string& base) {
  const std::string named =
      base.empty() ? JsonSection(folder / "adapter_config.json").string("base_model_name_or_path") : base;
  OpenedModel model = open_model(find_model(named));
  auto adapted =
      std::make_unique<AdaptedCheckpoint>(std::move(model.checkpoint), folder, architecture_of(model.config).tensors);
  model.config.vocab_size += adapted->added_tokens();
  for (const std::filesystem::path& file : adapted->files()) {
    if (std::ranges::find(model.files, file) == model.files.end()) model.files.push_back(file);
  }
  model.checkpoint = std::move(adapted);
  return model;
}

}  // namespace

OpenedModel open_model(const std::filesystem::path& path, const std::string& base) {
  if (std::filesystem::exists(path / "adapter_config.json")) return open_adapter(path, base);
  if (!std::filesystem::is_directory(path)) {
    if (path.extension() == ".gguf" || is_gguf(path)) return open_gguf(path);
    fail({.place = path.string(),
          .found = std::filesystem::exists(path) ? "a file" : "nothing",
          .expected = "a folder in Hugging Face layout or a .gguf file"});
  }
  if (std::filesystem::exists(path / "config.json")) return open_folder(path, /*weights=*/true);
  const std::unique_ptr<Checkpoint> checkpoint = open_checkpoint(path);
  if (checkpoint->path().extension() == ".gguf") return open_gguf(checkpoint->path());
  fail({.place = path.string(), .found = "weights without config.json", .expected = "config.json beside them"});
}

OpenedModel open_model_elsewhere(const std::filesystem::path& path) {
  const bool alone = std::filesystem::exists(path / "config.json") && !has_weights(path);
  return alone ? open_folder(path, /*weights=*/false) : open_model(path);
}

ChatTemplate choose_chat_template(const OpenedModel& model, const std::string& chosen) {
  if (chosen.empty()) return model.chat_template;
  const SpecialIds& ids = model.tokenizer->special_ids();
  return ChatTemplate::named(chosen, text_of(*model.tokenizer, ids.bos), text_of(*model.tokenizer, ids.eos));
}

}  // namespace kvarena
