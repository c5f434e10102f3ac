#pragma once
// Memory of the device for tests: a CUDA device's, or that of the emulator (tests/support/cuda), which is this
// process's.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/cuda/device.h"
#include "tests/kernels/packed_layer.h"

namespace kvarena::kernels::test {

/// A test that needs a device, or the emulator: skips with the reason where there is neither.
class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = cuda_absent();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

/// Copies of host memory on the device, kept while this lives.
class OnDevice {
 public:
  template <class T>
  [[nodiscard]] T* copy(const T* host, int64_t count) {
    if (host == nullptr) return nullptr;
    T* device = memory<T>(count);
    cuda_upload(device, host, count * static_cast<int64_t>(sizeof(T)), nullptr);
    return device;
  }
  template <class T>
  [[nodiscard]] T* copy(const std::vector<T>& host) {
    return copy(host.data(), static_cast<int64_t>(host.size()));
  }
  template <class T>
  [[nodiscard]] T* memory(int64_t count) {
    buffers_.emplace_back(std::max<int64_t>(1, count) * static_cast<int64_t>(sizeof(T)));
    return static_cast<T*>(buffers_.back().data());
  }
  /// The entries with what they point to on the device, for `entries` entries.
  [[nodiscard]] PackedEntries copy(const PackedEntries& host, int64_t entries) {
    PackedEntries device = host;
    const int64_t meta = packed_meta_count(host.kind, entries, host.head_dim, host.format);
    device.codes = copy(host.codes, packed_code_dwords(entries, host.head_dim, host.format.bits));
    device.scale = copy(host.scale, meta);
    device.zero = copy(host.zero, meta);
    device.format.codebook = copy(host.format.codebook, int64_t{1} << host.format.bits);
    return device;
  }
  /// Runs with what they point to on the device.
  [[nodiscard]] std::vector<HeadRun> copy(const Shape& shape, const std::vector<HeadRun>& host) {
    std::vector<HeadRun> runs = host;
    for (HeadRun& run : runs) {
      const auto bytes = [&](int64_t packed, int64_t dim) {
        return cell_bytes(run.entries - packed, dim, shape.dtype);
      };
      run.keys = copy(static_cast<const char*>(run.keys), bytes(run.packed_key_count, shape.head_dim));
      run.values = copy(static_cast<const char*>(run.values), bytes(run.packed_value_count, shape.value_dim));
      run.index = copy(run.index, run.index_count);
      run.packed_keys = keep(run.packed_keys, run.packed_key_count);
      run.packed_values = keep(run.packed_values, run.packed_value_count);
    }
    return runs;
  }

 private:
  const PackedEntries* keep(const PackedEntries* host, int64_t entries) {
    if (host == nullptr) return nullptr;
    return packed_.emplace_back(std::make_unique<PackedEntries>(copy(*host, entries))).get();
  }
  std::vector<CudaBuffer> buffers_;
  std::vector<std::unique_ptr<PackedEntries>> packed_;
};

template <class T>
[[nodiscard]] std::vector<T> from_device(const T* device, int64_t count) {
  std::vector<T> host(static_cast<size_t>(count));
  cuda_download(host.data(), device, count * static_cast<int64_t>(sizeof(T)), nullptr);
  cuda_synchronize(nullptr);
  return host;
}

}  // namespace kvarena::kernels::test
