#include "harness/evaluate/method_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/core/home.h"
#include "harness/engine/fitted_file.h"
#include "harness/method/fitter.h"
#include "harness/method/registry.h"
#include "harness/model/open_model.h"

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
  for (const fs::path& path : {fs::path(text), models / text, hub_snapshot(text).value_or("")}) {
    if (fs::is_regular_file(path, absent) || (fs::is_directory(path, absent) && holds_weights(path))) return path;
  }
  return {};
}

/// The method that an object of settings is of; null where it is none.
std::unique_ptr<Method> method_of(const json& spec) {
  const auto name = spec.find("name");
  const bool known = name != spec.end() && name->is_string() && find_method(*name) != nullptr;
  return known && check_method(spec, "").empty() ? make_method(spec, "") : nullptr;
}

/// The method's settings as they are.
std::vector<ParameterInfo> settings_of(Method& method) {
  return list_parameters([&](ParameterVisitor& p) { method.settings(p); });
}

/// Whether the setting `key` of the method of that name is a free text that is empty unless said: it names weights.
bool names_weights(const std::string& name, const std::string& key) {
  const auto settings = settings_of(*find_method(name)->create());
  const auto found = std::ranges::find(settings, key, &ParameterInfo::name);
  return found != settings.end() && found->type == ParameterInfo::Type::string && found->choices.empty() &&
         json::parse(found->default_json).get<std::string>().empty();
}

/// Whether a setting of the method could be "fitted" and is something else.
bool goes_without_fit(Method& method) {
  return std::ranges::any_of(settings_of(method), [](const ParameterInfo& setting) {
    const bool could = std::ranges::find(setting.choices, "fitted") != setting.choices.end();
    return could && json::parse(setting.default_json).get<std::string>() != "fitted";
  });
}

/// The weights that are named `text` and are not there.
MethodFile absent_file(const std::string& setting, const std::string& text, const fs::path& models) {
  const bool on_hub = is_hub_name(text) && text.find('/') != std::string::npos;
  return {.setting = setting,
          .missing = "weights " + text,
          .get = on_hub ? fmt::format("`hf download {}`", text)
                        : fmt::format("bring them to {}", (models / text).string())};
}

/// The artifact that a method finds by itself, or how to make it.
std::optional<MethodFile> fitted_file(Method& method, const std::string& setting, const FileSources& sources) {
  const auto fitter = method.fitter();
  if (!fitter || goes_without_fit(method)) return {};
  const FittedRequest wanted = fitter->artifact();
  if (const auto path = own_fitted(wanted, sources.fingerprint, sources.fitted)) {
    return MethodFile{.setting = setting, .path = *path};
  }
  return MethodFile{.setting = setting,
                    .missing = fmt::format("weights of {} for {}", wanted.stem(), sources.model),
                    .get = fmt::format("`{} --model {}`", fit_command(wanted), sources.model)};
}

void collect(const json& settings, const std::string& prefix, const FileSources& sources,
             std::vector<MethodFile>& files) {
  const auto method = settings.is_object() ? method_of(settings) : nullptr;
  bool named = false;
  for (const auto& [key, value] : settings.items()) {
    if (value.is_structured()) collect(value, prefix + key + ".", sources, files);
    if (!value.is_string() || key == "name") continue;
    if (find_method(value) != nullptr) collect(json{{"name", value}}, prefix + key + ".", sources, files);
    if (const auto path = file_named(value, sources.models)) {
      files.push_back({.setting = prefix + key, .path = *path});
      named = true;
    } else if (method && !value.get_ref<const std::string&>().empty() && names_weights(settings["name"], key)) {
      files.push_back(absent_file(prefix + key, value, sources.models));
      named = true;
    }
  }
  if (named || !method) return;
  if (auto file = fitted_file(*method, prefix + "fitted", sources)) files.push_back(std::move(*file));
}

}  // namespace

json spec_of(const experiment::ComponentEntry& entry) {
  json spec = json::parse(entry.settings_json);
  spec["name"] = entry.name;
  return spec;
}

FileSources file_sources(const experiment::ModelEntry& model, const fs::path& home) {
  const fs::path file = model.file(home), models = home / "models";
  const bool there = fs::exists(file);
  return {.model = !there || fs::exists(models / model.name) ? model.name : file.string(),
          .fingerprint = there ? fingerprint_of(*open_model(file).checkpoint) : "",
          .models = models,
          .fitted = {home / "fitted", project_fitted_folder()}};
}

std::vector<MethodFile> method_files(const json& settings, const FileSources& sources) {
  std::vector<MethodFile> files;
  collect(settings, "", sources, files);
  std::ranges::sort(files, {}, &MethodFile::setting);
  return files;
}

}  // namespace kvarena::evaluate
