#pragma once
// Methods that come from shared libraries and Python files.

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace kvarena {

struct LoadedPlugin {
  std::filesystem::path path;  // absolute, links resolved
  std::string name;            // as KVARENA_PLUGIN says
  std::string version;
  std::string sha256;                // of the file
  std::vector<std::string> methods;  // that it registered, by name
};

/// Loads libraries and Python files (*.py) and registers their methods; one that is loaded already is skipped. To be
/// called before the registry is first looked at, and before there are threads: each library is first tried out in a
/// child process (a Python file stays in one), so that one that crashes or aborts while it is loaded, or whose methods
/// cannot be made, is an error like any other. Throws UserError that names the file: absent, no plugin, made for
/// another version of the API or another build, lacking a symbol, registering no method, a name that is taken, one that
/// throws, or one that is not made within seconds.
void load_plugins(std::span<const std::filesystem::path> paths);

/// The files that the variable KVARENA_PLUGINS names, separated by colons.
[[nodiscard]] std::vector<std::filesystem::path> plugins_of_environment();

/// The plugins that were loaded, in order.
[[nodiscard]] const std::vector<LoadedPlugin>& loaded_plugins();

}  // namespace kvarena
