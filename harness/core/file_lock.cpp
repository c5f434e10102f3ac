#include "harness/core/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "harness/core/error.h"
#include "harness/core/links.h"

namespace kvarena {
namespace {

/// The holder as the lock file names it: "process 4711 on host".
std::string holder(int fd) {
  std::array<char, 256> text{};
  const ssize_t length = ::pread(fd, text.data(), text.size() - 1, 0);
  return length > 0 ? std::string(text.data(), static_cast<size_t>(length)) : "another process";
}

std::string host_name() {
  std::array<char, 128> host{};
  ::gethostname(host.data(), host.size() - 1);
  return host.data();
}

void write_holder(int fd) {
  const std::string text = fmt::format("process {} on {}", ::getpid(), host_name());
  // Written only for the message of a process that is refused; without it the lock holds all the same.
  if (::ftruncate(fd, 0) == 0) (void)!::pwrite(fd, text.data(), text.size(), 0);
}

/// False when the file was removed by its last holder between our opening and locking it.
bool still_in_place(int fd, const std::filesystem::path& path) {
  struct stat ours {
  }, there{};
  return ::fstat(fd, &ours) == 0 && ::stat(path.c_str(), &there) == 0 && ours.st_ino == there.st_ino;
}

/// Whether the kernel lists a lock on the open file (proc(5), /proc/locks: "1: FLOCK ADVISORY WRITE 4711 08:02:99 0
/// EOF").
bool is_locked(int fd) {
  struct stat ours {};
  std::ifstream locks("/proc/locks");
  if (::fstat(fd, &ours) != 0 || !locks) return false;
  const std::string inode = fmt::format(":{} ", ours.st_ino);
  for (std::string line; std::getline(locks, line);) {
    if (line.find(" FLOCK ") != std::string::npos && line.find(inode) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

FileLock::FileLock(std::filesystem::path file, const LockWords& words) : path_(std::move(file)) {
  while (true) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) {
      fail({.place = words.place,
            .found =
                fmt::format("a place where {} cannot be made ({})", path_.filename().string(), std::strerror(errno)),
            .expected = "a folder that exists and can be written",
            .action = "make it so or choose another"});
    }
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      const std::string who = errno == EWOULDBLOCK ? holder(fd_) : std::strerror(errno);
      ::close(std::exchange(fd_, -1));
      fail({.place = words.place, .found = fmt::format("{} ({})", words.held, who), .action = words.action});
    }
    if (still_in_place(fd_, path_)) break;
    ::close(std::exchange(fd_, -1));
  }
  write_holder(fd_);
}

FileLock::~FileLock() {
  if (fd_ < 0) return;
  ::unlink(path_.c_str());  // while the lock is held: a process that opened the old file notices in still_in_place()
  ::close(fd_);
}

std::filesystem::path lock_of(const std::filesystem::path& file) { return behind_links(file) += "-lock"; }

std::optional<LockHolder> lock_holder(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  const std::string text = holder(fd);
  const bool locked = is_locked(fd);
  ::close(fd);
  LockHolder found;
  std::array<char, 128> host{};
  long long process = 0;
  if (std::sscanf(text.c_str(), "process %lld on %127s", &process, host.data()) != 2) return std::nullopt;
  found = {.process = process, .host = host.data(), .on_this_host = host_name() == host.data()};
  if (found.on_this_host && !locked) return std::nullopt;
  return found;
}

FileLock::FileLock(FileLock&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

}  // namespace kvarena
