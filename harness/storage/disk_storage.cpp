#include "harness/storage/disk_storage.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

namespace kvarena::storage {
namespace {

/// Unit of offsets, lengths and memory addresses of direct access, in bytes.
constexpr int64_t kSector = 4096;

int64_t round_down(int64_t x) { return x / kSector * kSector; }
int64_t round_up(int64_t x) { return (x + kSector - 1) / kSector * kSector; }

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& what, int error) {
  fail({.place = file.string(),
        .found = fmt::format("{}: {}", what, std::generic_category().message(error)),
        .expected = "a file of the disk tier that can be read and written"});
}

class File {
 public:
  File(std::filesystem::path path, int64_t bytes, DiskAccess access) : path_(std::move(path)) {
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | (access == DiskAccess::direct ? O_DIRECT : 0);
    handle_ = ::open(path_.c_str(), flags, S_IRUSR | S_IWUSR);
    if (handle_ < 0)
      refuse(path_, access == DiskAccess::direct ? "cannot be made for direct access" : "cannot be made", errno);
    if (const int error = ::posix_fallocate(handle_, 0, bytes); error != 0) {
      close();
      refuse(path_, fmt::format("no room for {} bytes", bytes), error);
    }
  }
  ~File() { close(); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void read(int64_t at, std::byte* to, int64_t bytes) const {
    while (bytes > 0) {
      const ssize_t got = ::pread(handle_, to, static_cast<size_t>(bytes), at);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) refuse(path_, fmt::format("reading {} bytes at {}", bytes, at), errno);
      if (got == 0) refuse(path_, fmt::format("the file ends before byte {}", at + bytes), EIO);
      to += got;
      at += got;
      bytes -= got;
    }
  }
  void write(int64_t at, const std::byte* from, int64_t bytes) {
    while (bytes > 0) {
      const ssize_t put = ::pwrite(handle_, from, static_cast<size_t>(bytes), at);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) refuse(path_, fmt::format("writing {} bytes at {}", bytes, at), errno);
      from += put;
      at += put;
      bytes -= put;
    }
  }

 private:
  void close() noexcept {
    if (handle_ < 0) return;
    ::close(handle_);
    handle_ = -1;
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

  std::filesystem::path path_;
  int handle_ = -1;
};

/// Memory that direct access takes.
struct FreeSectors {
  void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{kSector}); }
};
using Sectors = std::unique_ptr<std::byte, FreeSectors>;

class DiskBlock final : public Block {
 public:
  DiskBlock(const std::filesystem::path& path, int64_t bytes, DiskAccess access, LedgerPtr ledger,
            std::shared_ptr<Capacity> room)
      : file_(path, round_up(bytes), access),
        bytes_(bytes),
        access_(access),
        ledger_(std::move(ledger)),
        room_(std::move(room)) {
    ledger_->add(Tier::disk, bytes_);
  }
  ~DiskBlock() override {
    ledger_->add(Tier::disk, -bytes_);
    room_->give_back(bytes_);
  }
  DiskBlock(const DiskBlock&) = delete;
  DiskBlock& operator=(const DiskBlock&) = delete;

  [[nodiscard]] int64_t bytes() const override { return bytes_; }

  void read(int64_t at, std::span<std::byte> to) const override {
    const auto bytes = static_cast<int64_t>(to.size());
    if (access_ == DiskAccess::buffered) return file_.read(at, to.data(), bytes);
    const Sectors sectors = whole_sectors(at, bytes);
    std::memcpy(to.data(), sectors.get() + (at - round_down(at)), to.size());
  }

  void write(int64_t at, std::span<const std::byte> from) override {
    const auto bytes = static_cast<int64_t>(from.size());
    if (access_ == DiskAccess::buffered) return file_.write(at, from.data(), bytes);
    const Sectors sectors = whole_sectors(at, bytes);
    std::memcpy(sectors.get() + (at - round_down(at)), from.data(), from.size());
    file_.write(round_down(at), sectors.get(), round_up(at + bytes) - round_down(at));
  }

 private:
  /// The sectors that hold bytes at .. at+bytes-1.
  [[nodiscard]] Sectors whole_sectors(int64_t at, int64_t bytes) const {
    const int64_t size = round_up(at + bytes) - round_down(at);
    Sectors sectors(static_cast<std::byte*>(::operator new (static_cast<size_t>(size), std::align_val_t{kSector})));
    file_.read(round_down(at), sectors.get(), size);
    return sectors;
  }

  File file_;
  int64_t bytes_;
  DiskAccess access_;
  LedgerPtr ledger_;
  std::shared_ptr<Capacity> room_;
};

}  // namespace

DiskStorage::DiskStorage(std::filesystem::path folder, int64_t capacity, DiskAccess access)
    : Storage(Tier::disk, capacity), folder_(std::move(folder)), access_(access) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) refuse(folder_, "cannot be made", error.value());
}

std::shared_ptr<Block> DiskStorage::make_block(const LedgerPtr& ledger, int64_t bytes) {
  const auto path = folder_ / fmt::format("block-{}-{}.kv", ::getpid(), made_++);
  return std::make_shared<DiskBlock>(path, bytes, access_, ledger, room());
}

}  // namespace kvarena::storage
