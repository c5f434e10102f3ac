#pragma once
// The right to write to a database, held by one process at a time.

#include <filesystem>

namespace kvarena::store {

/// An advisory lock on `<database>-lock`, a file of its own because closing any descriptor of the database itself
/// would drop SQLite's locks. The kernel frees it when the process dies, however it dies.
class WriterLock {
 public:
  /// Throws UserError naming the database and the process that writes to it, or why the lock file cannot be made.
  explicit WriterLock(const std::filesystem::path& database);
  ~WriterLock();
  WriterLock(WriterLock&& other) noexcept;
  WriterLock& operator=(WriterLock&&) = delete;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace kvarena::store
