// Models of this machine, wherever programs keep them.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "harness/core/files.h"
#include "harness/core/home.h"

namespace kvarena {
namespace {

using Path = std::filesystem::path;
using nlohmann::json;

std::vector<Path> entries_of(const Path& folder) {
  std::error_code absent;
  std::vector<Path> entries;
  for (const auto& entry : std::filesystem::directory_iterator(folder, absent)) entries.push_back(entry.path());
  std::ranges::sort(entries);
  return entries;
}

void add_own(std::vector<FoundModel>& models) {
  for (const Path& entry : entries_of(kvarena_home() / "models")) {
    models.push_back({.name = entry.filename().string(), .place = "KVARENA_HOME", .path = entry});
  }
}

void add_hub(std::vector<FoundModel>& models) {
  const auto cache = hub_cache();
  if (!cache) return;
  for (const Path& entry : entries_of(*cache)) {
    const std::string folder = entry.filename().string();
    const size_t dashes = folder.rfind("--");
    if (!folder.starts_with(kHubFolder) || dashes < kHubFolder.size()) continue;
    const std::string name =
        fmt::format("{}/{}", folder.substr(kHubFolder.size(), dashes - kHubFolder.size()), folder.substr(dashes + 2));
    if (const auto snapshot = hub_snapshot(name)) {
      models.push_back({.name = name, .place = "Hugging Face", .path = *snapshot});
    }
  }
}

void add_llama_cpp(std::vector<FoundModel>& models) {
  const auto cache = user_folder("LLAMA_CACHE", ".cache/llama.cpp");
  if (!cache) return;
  for (const Path& entry : entries_of(*cache)) {
    if (entry.extension() == ".gguf") models.push_back({.name = entry.string(), .place = "llama.cpp", .path = entry});
  }
}

/// The file of weights that a manifest of Ollama names; nothing for one that cannot be read.
std::optional<Path> ollama_weights(const Path& root, const Path& manifest) {
  const json read = json::parse(read_file(manifest), nullptr, /*allow_exceptions=*/false);
  if (!read.is_object()) return std::nullopt;
  for (const json& layer : read.value("layers", json::array())) {
    if (layer.value("mediaType", "") != "application/vnd.ollama.image.model") continue;
    std::string digest = layer.value("digest", "");
    std::ranges::replace(digest, ':', '-');
    return root / "blobs" / digest;
  }
  return std::nullopt;
}

void add_ollama(std::vector<FoundModel>& models) {
  const auto root = user_folder("OLLAMA_MODELS", ".ollama/models");
  if (!root) return;
  std::error_code absent;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(*root / "manifests", absent)) {
    if (!entry.is_regular_file()) continue;
    const auto weights = ollama_weights(*root, entry.path());
    if (weights && std::filesystem::exists(*weights)) {
      models.push_back({.name = weights->string(),
                        .place = fmt::format("Ollama, {}:{}", entry.path().parent_path().filename().string(),
                                             entry.path().filename().string()),
                        .path = *weights});
    }
  }
}

}  // namespace

std::vector<FoundModel> found_models() {
  std::vector<FoundModel> models;
  add_own(models);
  add_hub(models);
  add_llama_cpp(models);
  add_ollama(models);
  return models;
}

}  // namespace kvarena
