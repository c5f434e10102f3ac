#pragma once
// Symbolic links.

#include <filesystem>

namespace kvarena {

/// The path that `path` leads to through symbolic links, which may have nothing at its end. Links that lead in a circle
/// are followed until the system would give up.
[[nodiscard]] std::filesystem::path behind_links(std::filesystem::path path);

}  // namespace kvarena
