#pragma once
// Files: memory-mapped reading, whole-file reading, writing that is all or nothing, hashes.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace kvarena {

/// A file mapped read-only. Move-only; unmapped on destruction. An empty file maps to an empty span.
class MappedFile {
 public:
  /// Throws UserError naming the path when it cannot be opened or mapped.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// The whole file. Throws UserError naming the path and the system's reason.
[[nodiscard]] std::string read_file(const std::filesystem::path& path);

/// Whether the file is an SQLite database. Throws UserError where it cannot be opened.
[[nodiscard]] bool is_database(const std::filesystem::path& path);

/// Writes beside the target and renames over it, so that a reader sees the old file or the new one, never a part. The
/// target is what the path leads to through symbolic links, and keeps its mode. What is no regular file (a device, a
/// pipe that someone reads) is written into. Throws UserError for a folder, and for a database: that is no output.
void write_file(const std::filesystem::path& path, std::string_view content);

/// Lower-case hexadecimal SHA-256, as sha256sum prints it.
[[nodiscard]] std::string sha256(std::span<const std::byte> bytes);
[[nodiscard]] std::string sha256(std::string_view text);

}  // namespace kvarena
