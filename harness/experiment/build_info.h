#pragma once
// Inside the experiment folder: compiler, flags and revision, written by CMake, so that a new revision recompiles one
// small file.

#include <string>

namespace kvarena::experiment {

struct BuildInfo {
  std::string compiler;       // "GNU 12.2.0"
  std::string build_type;     // "Release"
  std::string flags;          // "-O3 -DNDEBUG"
  std::string torch_version;  // "" = built without
};

[[nodiscard]] BuildInfo build_info();

/// Hash of the commit, "-dirty" behind it when tracked files were changed, "unknown" outside git.
[[nodiscard]] std::string git_revision();

}  // namespace kvarena::experiment
