#pragma once
// Plugins that are Python files.

#include <filesystem>
#include <string>

#include "harness/method/plugins.h"

namespace kvarena {

/// Imports the file in a Python process and registers its methods. Throws UserError with Python's reason: an import
/// that fails, no method in it, a name that is taken, a parameter of a type that no config can hold.
[[nodiscard]] LoadedPlugin load_python_plugin(const std::filesystem::path& path, const std::string& sha256);

}  // namespace kvarena
