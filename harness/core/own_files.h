#pragma once
// Files that come with the program and lie in its folder: a build folder, or one that `cmake --install` or pip made.

#include <filesystem>
#include <string>

namespace kvarena {

/// Path of "configs", "samples" or "child.py". Throws UserError for a program that was copied out of its folder.
[[nodiscard]] std::filesystem::path own_file(const std::string& name);

/// The path itself where something is there; "configs/..." is otherwise looked for among the program's own.
[[nodiscard]] std::filesystem::path find_config(const std::filesystem::path& path);

/// The command that fetches models and word lists, as messages quote it.
[[nodiscard]] std::string setup_command();

}  // namespace kvarena
