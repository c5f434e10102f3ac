#pragma once
// Memory of the emulated devices.

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace emulated_cuda {

/// Memory of one device among several, which can be closed to everybody.
class DeviceArena {
 public:
  explicit DeviceArena(size_t bytes);
  /// Null where there is no room.
  [[nodiscard]] unsigned char* allocate(size_t bytes);
  void free(unsigned char* memory);
  [[nodiscard]] bool holds(const void* memory) const;
  [[nodiscard]] size_t left() const { return bytes_ - used_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }
  void set_open(bool open);

 private:
  unsigned char* begin_;
  size_t bytes_, used_ = 0;
  bool open_ = true;
  std::map<unsigned char*, size_t> taken_;  // address and bytes of each block
};

/// Memory of several devices, by number; empty where there is one, whose memory is the host's.
[[nodiscard]] std::vector<DeviceArena>& device_arenas();

/// Closes the memory of all devices but one while it lives.
class OnlyDevice {
 public:
  explicit OnlyDevice(int device);
  ~OnlyDevice();
  OnlyDevice(const OnlyDevice&) = delete;
  OnlyDevice& operator=(const OnlyDevice&) = delete;
};

}  // namespace emulated_cuda
