#pragma once
// Files that methods read beside their model: fitted weights, checkpoints that draft, questions.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace kvarena::evaluate {

struct MethodFile {
  std::string setting;  // "drafter.weights"; "drafter.fitted": weights that it finds by itself
  std::filesystem::path path;
};

/// The model whose methods read files, and where these are.
struct FileSources {
  std::string fingerprint;  // fingerprint_of() its checkpoint
  std::filesystem::path models;
  std::vector<std::filesystem::path> fitted;  // folders, each of which holds a folder a model
};

/// Files and folders of weights that strings in `settings` name, at any depth, as a path or as a folder of
/// sources.models; and the weights fitted for the model that a method in it, {"name": ..., ...}, finds where it names
/// none. Sorted by setting.
[[nodiscard]] std::vector<MethodFile> method_files(const nlohmann::json& settings, const FileSources& sources);

}  // namespace kvarena::evaluate
