#pragma once
// A lock held by one process at a time.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace kvarena {

/// Parts of the message to a process that is refused the lock.
struct LockWords {
  std::string place;   // "results.db"
  std::string held;    // "a database that another run writes to": who follows in brackets
  std::string action;  // "wait for it to end, stop it, or choose another output.database"
};

/// An advisory lock on a file of its own. The kernel frees it when the process dies, however it dies.
class FileLock {
 public:
  /// Throws UserError with the given text and the process that holds the lock, or why the lock file cannot be made.
  FileLock(std::filesystem::path file, const LockWords& words);
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

/// The lock file of `file`, beside what it leads to: one lock under whatever name the file is opened.
[[nodiscard]] std::filesystem::path lock_of(const std::filesystem::path& file);

struct LockHolder {
  int64_t process = 0;
  std::string host;
  bool on_this_host = false;
};

/// The process that holds the lock on `file`; nothing when none does. Takes no lock itself. A holder on another host is
/// believed to live, since that cannot be checked from here.
[[nodiscard]] std::optional<LockHolder> lock_holder(const std::filesystem::path& file);

}  // namespace kvarena
