#include "harness/core/home.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/own_files.h"

namespace kvarena {
namespace {

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(folder, absent)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

/// The folder that a variable of the environment names; nothing where it is unset or empty.
std::optional<std::filesystem::path> folder_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::filesystem::path>(value);
}

/// A revision in a model's folder of the hub's cache: a branch, a tag, or a commit by its first characters.
std::optional<std::filesystem::path> snapshot_of(const std::filesystem::path& folder, const std::string& revision) {
  const std::filesystem::path ref = folder / "refs" / revision;
  std::string commit = std::filesystem::is_regular_file(ref) ? read_file(ref) : revision;
  commit.erase(std::ranges::find_if(commit, [](unsigned char c) { return std::isspace(c) != 0; }), commit.end());
  for (const std::string& name : names_in(folder / "snapshots")) {
    if (!commit.empty() && name.starts_with(commit)) return folder / "snapshots" / name;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::filesystem::path> user_folder(const char* variable, const char* below_home) {
  if (const auto folder = folder_of(variable)) return folder;
  const auto home = folder_of("HOME");
  return home ? std::optional(*home / below_home) : std::nullopt;
}

std::optional<std::filesystem::path> hub_cache() {
  if (const auto home = folder_of("HF_HOME"); home && !folder_of("HF_HUB_CACHE")) return *home / "hub";
  return user_folder("HF_HUB_CACHE", ".cache/huggingface/hub");
}

std::filesystem::path kvarena_home() {
  if (const auto home = user_folder("KVARENA_HOME", ".cache/kvarena")) return *home;
  fail({.place = "KVARENA_HOME",
        .found = "neither it nor HOME in the environment",
        .expected = "the folder where models are kept"});
}

bool is_hub_name(const std::string& model) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; };
  const size_t slash = model.find('/');
  return slash != 0 && slash < model.size() - 1 && model.front() != '.' &&
         std::ranges::all_of(model.substr(0, slash) + model.substr(slash + 1), allowed);
}

std::optional<std::filesystem::path> hub_snapshot(const std::string& hub_name) {
  const std::optional<std::filesystem::path> cache = hub_cache();
  const size_t at = hub_name.find('@');
  const std::string name = hub_name.substr(0, at);
  if (!cache || !is_hub_name(name)) return std::nullopt;
  const size_t slash = name.find('/');
  return snapshot_of(*cache / fmt::format("{}{}--{}", kHubFolder, name.substr(0, slash), name.substr(slash + 1)),
                     at == std::string::npos ? "main" : hub_name.substr(at + 1));
}

std::filesystem::path find_model(const std::string& model) {
  const bool is_path = model.find('/') != std::string::npos;
  if (is_path || std::filesystem::exists(model)) {
    if (std::filesystem::exists(model)) return snapshot_of(model, "main").value_or(model);
    if (const auto snapshot = hub_snapshot(model)) return *snapshot;
    fail({.place = model,
          .found = "nothing there",
          .expected = "a model: a folder in Hugging Face layout or a .gguf file",
          .action = is_hub_name(model) ? fmt::format("`hf download {}` brings one of the hub", model) : ""});
  }
  const std::filesystem::path models = kvarena_home() / "models";
  if (!model.empty() && std::filesystem::exists(models / model)) return models / model;
  fail({.place = fmt::format("model \"{}\"", model),
        .found = fmt::format("no folder {}", (models / model).string()),
        .expected = "the name of a folder there, or a path",
        .nearest = nearest_name(model, names_in(models)),
        .action = setup_command() + " fetches the default model"});
}

std::string model_name(const std::filesystem::path& path) {
  for (const std::filesystem::path& part : path) {
    const std::string text = part.string();
    if (text.starts_with(kHubFolder)) return text.substr(text.rfind("--") + 2);
  }
  const std::filesystem::path last = path.has_filename() ? path.filename() : path.parent_path().filename();
  return last.extension() == ".gguf" ? last.stem().string() : last.string();
}

}  // namespace kvarena
