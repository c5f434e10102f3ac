#include "tests/support/cuda/emulated_devices.h"

#include <sys/mman.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace emulated_cuda {

constexpr size_t kPage = 4096;

DeviceArena::DeviceArena(size_t bytes) : bytes_((bytes + kPage - 1) / kPage * kPage) {
  void* const memory =
      ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::logic_error("emulated CUDA: no memory for a device");
  begin_ = static_cast<unsigned char*>(memory);
}

/// The first gap that is large enough.
unsigned char* DeviceArena::allocate(size_t bytes) {
  unsigned char* at = begin_;
  for (const auto& [taken, size] : taken_) {
    if (at + bytes <= taken) break;
    at = taken + size;
  }
  if (at + bytes > begin_ + bytes_) return nullptr;
  taken_[at] = bytes;
  used_ += bytes;
  return at;
}

void DeviceArena::free(unsigned char* memory) {
  const auto found = taken_.find(memory);
  if (found == taken_.end()) throw std::logic_error("emulated CUDA: memory is freed that was not allocated");
  // Pages that nobody uses go back: set_open() takes time for each that is there.
  const size_t first = (static_cast<size_t>(memory - begin_) + kPage - 1) / kPage * kPage;
  const size_t end = (static_cast<size_t>(memory - begin_) + found->second) / kPage * kPage;
  if (first < end) ::madvise(begin_ + first, end - first, MADV_DONTNEED);
  used_ -= found->second;
  taken_.erase(found);
}

bool DeviceArena::holds(const void* memory) const {
  const auto* at = static_cast<const unsigned char*>(memory);
  return at >= begin_ && at < begin_ + bytes_;
}

void DeviceArena::set_open(bool open) {
  if (open == open_) return;
  open_ = open;
  if (::mprotect(begin_, bytes_, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
    throw std::logic_error("emulated CUDA: a device's memory cannot be closed");
}

std::vector<DeviceArena>& device_arenas() {
  static std::vector<DeviceArena> all = [] {
    std::vector<DeviceArena> arenas;
    const char* const listed = std::getenv("KVARENA_EMULATED_DEVICES");
    for (std::string sizes = listed == nullptr ? "" : listed; !sizes.empty();) {
      arenas.emplace_back(std::stoull(sizes));
      const size_t comma = sizes.find(',');
      sizes = comma == std::string::npos ? "" : sizes.substr(comma + 1);
    }
    return arenas;
  }();
  return all;
}

OnlyDevice::OnlyDevice(int device) {
  for (int i = 0; DeviceArena & arena : device_arenas()) arena.set_open(i++ == device);
}
OnlyDevice::~OnlyDevice() {
  for (DeviceArena& arena : device_arenas()) arena.set_open(true);
}

}  // namespace emulated_cuda
