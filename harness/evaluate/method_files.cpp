#include "harness/evaluate/method_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/engine/fitted_file.h"
#include "harness/method/fitter.h"
#include "harness/method/registry.h"

namespace kvarena::evaluate {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool holds_weights(const fs::path& folder) {
  std::error_code absent;
  const auto is_one = [](const fs::directory_entry& entry) {
    const fs::path ending = entry.path().extension();
    return ending == ".gguf" || ending == ".safetensors" || entry.path().filename() == "config.json";
  };
  return std::ranges::any_of(fs::directory_iterator(folder, absent), is_one);
}

std::optional<fs::path> file_named(const std::string& text, const fs::path& models) {
  if (text.empty()) return {};
  std::error_code absent;
  for (const fs::path& path : {fs::path(text), models / text}) {
    if (fs::is_regular_file(path, absent) || (fs::is_directory(path, absent) && holds_weights(path))) return path;
  }
  return {};
}

/// The artifact that a method finds by itself.
std::optional<fs::path> fitted_file(const json& spec, const FileSources& sources) {
  const auto name = spec.find("name");
  if (name == spec.end() || !name->is_string() || find_method(*name) == nullptr) return {};
  if (!check_method(spec, "").empty()) return {};
  const auto fitter = make_method(spec, "")->fitter();
  return fitter ? own_fitted(fitter->artifact(), sources.fingerprint, sources.fitted) : std::nullopt;
}

void collect(const json& settings, const std::string& prefix, const FileSources& sources,
             std::vector<MethodFile>& files) {
  bool named = false;
  for (const auto& [key, value] : settings.items()) {
    if (value.is_structured()) collect(value, prefix + key + ".", sources, files);
    if (!value.is_string() || key == "name") continue;
    if (find_method(value) != nullptr) collect(json{{"name", value}}, prefix + key + ".", sources, files);
    if (const auto path = file_named(value, sources.models)) {
      files.push_back({.setting = prefix + key, .path = *path});
      named = true;
    }
  }
  if (named || !settings.is_object()) return;
  if (const auto path = fitted_file(settings, sources)) files.push_back({.setting = prefix + "fitted", .path = *path});
}

}  // namespace

std::vector<MethodFile> method_files(const json& settings, const FileSources& sources) {
  std::vector<MethodFile> files;
  collect(settings, "", sources, files);
  std::ranges::sort(files, {}, &MethodFile::setting);
  return files;
}

}  // namespace kvarena::evaluate
