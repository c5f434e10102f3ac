#include "harness/core/home.h"

#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "harness/core/error.h"

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

}  // namespace

std::filesystem::path kvarena_home() {
  if (const char* home = std::getenv("KVARENA_HOME"); home != nullptr && *home != '\0') return home;
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return std::filesystem::path(home) / ".cache" / "kvarena";
  }
  fail({.place = "KVARENA_HOME",
        .found = "neither it nor HOME in the environment",
        .expected = "the folder where models are kept"});
}

std::filesystem::path find_model(const std::string& model) {
  const bool is_path = model.find('/') != std::string::npos;
  if (is_path || std::filesystem::exists(model)) {
    if (std::filesystem::exists(model)) return model;
    fail({.place = model,
          .found = "nothing there",
          .expected = "a model: a folder in Hugging Face layout or a .gguf file"});
  }
  const std::filesystem::path models = kvarena_home() / "models";
  if (!model.empty() && std::filesystem::exists(models / model)) return models / model;
  fail({.place = fmt::format("model \"{}\"", model),
        .found = fmt::format("no folder {}", (models / model).string()),
        .expected = "the name of a folder there, or a path",
        .nearest = nearest_name(model, names_in(models)),
        .action = "`scripts/setup` fetches the default model"});
}

}  // namespace kvarena
