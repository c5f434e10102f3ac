#pragma once
// The right to write somewhere, held by one process at a time.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace kvarena {

/// What whoever is refused is told.
struct LockWords {
  std::string place;   // "results.db"
  std::string held;    // "a database that another run writes to": who follows in brackets
  std::string action;  // "wait for it to end, stop it, or choose another output.database"
};

/// An advisory lock on a file of its own. The kernel frees it when the process dies, however it dies.
class FileLock {
 public:
  /// Throws UserError in the given words, with the process that holds the lock, or why the lock file cannot be made.
  FileLock(std::filesystem::path file, const LockWords& words);
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

struct LockHolder {
  int64_t process = 0;
  std::string host;
  bool on_this_host = false;
};

/// Who holds the lock on `file`, nothing when nobody does. Taking no lock itself, it refuses nobody who wants one. What
/// a process of another host wrote is believed: whether it lives cannot be seen from here.
[[nodiscard]] std::optional<LockHolder> lock_holder(const std::filesystem::path& file);

}  // namespace kvarena
