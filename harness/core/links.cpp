#include "harness/core/links.h"

namespace kvarena {

std::filesystem::path behind_links(std::filesystem::path path) {
  constexpr int kMostLinks = 40;  // path_resolution(7)
  std::error_code failed;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(path, failed); ++i) {
    const std::filesystem::path link = std::filesystem::read_symlink(path, failed);
    if (failed) break;
    path = path.parent_path() / link;
  }
  return path;
}

}  // namespace kvarena
