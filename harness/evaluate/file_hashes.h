#pragma once
// SHA-256 of files that decide numbers, without reading a large checkpoint again for every plan.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace kvarena::evaluate {

/// Remembers hashes by path, inode, size and time of the last change, which no program can set back, in memory and in a
/// file that may be lost or unwritable without harm.
class FileHashes {
 public:
  explicit FileHashes(std::filesystem::path memory);

  /// Hexadecimal; of a folder, of its files' names and hashes. Throws UserError naming a file that cannot be read.
  [[nodiscard]] std::string of(const std::filesystem::path& path);
  /// Hash over the files' names and hashes, in this order.
  [[nodiscard]] std::string of_all(const std::vector<std::filesystem::path>& files);

 private:
  std::filesystem::path memory_;
  std::map<std::string, std::string> known_;  // "path inode size time" -> hash
};

}  // namespace kvarena::evaluate
