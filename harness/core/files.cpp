#include "harness/core/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "harness/core/error.h"
#include "harness/core/links.h"

namespace kvarena {
namespace {

[[noreturn]] void fail_io(const std::filesystem::path& path, std::string_view attempt) {
  fail({.place = path.string(), .found = fmt::format("{} ({})", attempt, std::strerror(errno))});
}

/// A POSIX descriptor that closes itself.
class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC)) {
    if (fd_ < 0) fail_io(path, "a file that cannot be opened");
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

/// Writes into what is there: a device, or a pipe that someone reads.
void write_into(const std::filesystem::path& path, std::string_view content) {
  const Descriptor file(path, O_WRONLY | O_NONBLOCK);  // a pipe that nobody reads refuses instead of waiting
  ::fcntl(file.get(), F_SETFL, 0);
  while (!content.empty()) {
    const ssize_t length = ::write(file.get(), content.data(), content.size());
    if (length < 0 && errno != EINTR) fail_io(path, "a write that did not finish");
    if (length > 0) content.remove_prefix(static_cast<size_t>(length));
  }
}

/// Results that took days to compute are not replaced by a page about them.
void refuse_database(const std::filesystem::path& path) {
  if (!is_database(path)) return;
  fail({.place = path.string(),
        .found = "a database",
        .expected = "a file that may be replaced",
        .action = "choose another file to write to"});
}

}  // namespace

bool is_database(const std::filesystem::path& path) {
  constexpr std::string_view kMark = "SQLite format 3";  // https://sqlite.org/fileformat.html
  std::array<char, kMark.size()> begin{};
  const Descriptor file(path, O_RDONLY);
  const ssize_t length = ::read(file.get(), begin.data(), begin.size());
  return length >= 0 && std::string_view(begin.data(), static_cast<size_t>(length)) == kMark;
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const Descriptor file(path, O_RDONLY | O_NONBLOCK);  // opening a pipe would wait for a writer
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail_io(path, "a file that cannot be examined");
  if (!S_ISREG(info.st_mode)) fail({.place = path.string(), .found = "not a regular file", .expected = "a file"});
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) return;
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapped == MAP_FAILED) fail_io(path, "a file that cannot be mapped");
  data_ = static_cast<const std::byte*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::string read_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  struct stat there {};
  const bool exists = ::stat(path.c_str(), &there) == 0;
  if (exists && !S_ISREG(there.st_mode)) return write_into(path, content);
  const std::filesystem::path target = behind_links(path);
  if (exists) refuse_database(target);
  std::filesystem::path temporary = target;
  temporary += fmt::format(".{}.tmp", ::getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (file == nullptr) fail_io(path, "a place that cannot be written");
  const bool written = content.empty() || std::fwrite(content.data(), 1, content.size(), file) == content.size();
  const bool flushed = std::fflush(file) == 0 && ::fsync(::fileno(file)) == 0;
  const bool like_before = !exists || ::fchmod(::fileno(file), there.st_mode & 07777U) == 0;
  const bool closed = std::fclose(file) == 0;
  if (!written || !flushed || !like_before || !closed || std::rename(temporary.c_str(), target.c_str()) != 0) {
    const int reason = errno;
    std::remove(temporary.c_str());
    errno = reason;
    fail_io(path, "a write that did not finish");
  }
}

std::string sha256(std::span<const std::byte> bytes) {
  std::array<unsigned char, 32> digest{};
  unsigned int length = 0;
  const int done = EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr);
  KVARENA_ASSERT(done == 1 && length == digest.size(), "libcrypto refused to compute a SHA-256");
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : digest) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

std::string sha256(std::string_view text) { return sha256(std::as_bytes(std::span(text.data(), text.size()))); }

}  // namespace kvarena
