#pragma once
// Files that methods read beside their model: fitted weights, checkpoints that draft, questions.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/experiment/config.h"

namespace kvarena::evaluate {

/// {"name": ..., settings}: a config's entry as registries take it.
[[nodiscard]] nlohmann::json spec_of(const experiment::ComponentEntry& entry);

struct MethodFile {
  std::string setting;              // "drafter.weights"; "drafter.fitted": weights that it finds by itself
  std::filesystem::path path = {};  // empty: not there
  std::string missing = {};         // of weights that are not there: their name
  std::string get = {};             // and what brings them
};

/// The model whose methods read files, and where these are.
struct FileSources {
  std::string model;        // as commands name it
  std::string fingerprint;  // fingerprint_of() its checkpoint; empty where that is not there: nothing was fitted for it
  std::filesystem::path models;
  std::vector<std::filesystem::path> fitted;  // folders, each of which holds a folder a model
};

/// Where methods' weights for a model are looked for, whether the model is there or not.
[[nodiscard]] FileSources file_sources(const experiment::ModelEntry& model, const std::filesystem::path& home);

/// Files and folders of weights that strings in `settings` name, at any depth, as a path, a folder of sources.models or
/// a name on Hugging Face's hub; and the weights fitted for the model that a method in it, {"name": ..., ...}, finds
/// where it names none. Free texts of methods name weights, and a setting that could be "fitted" and is not needs none.
/// Sorted by setting.
[[nodiscard]] std::vector<MethodFile> method_files(const nlohmann::json& settings, const FileSources& sources);

}  // namespace kvarena::evaluate
