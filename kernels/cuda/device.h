#pragma once
// What the host needs of a CUDA device: memory, copies, streams. Plain C++; no header of CUDA or libtorch is included.
//
// A failed call throws std::runtime_error that says what was attempted; kernels run asynchronously on their stream, so
// the error of one may show at a later call.

#include <cstdint>
#include <string>
#include <vector>

struct CUstream_st;
struct CUevent_st;

namespace kvarena::kernels {

/// cudaStream_t; null is the default stream.
using CudaStream = CUstream_st*;
/// cudaEvent_t.
using CudaEvent = CUevent_st*;

/// Why no kernel can run here ("no CUDA device: ..."), or empty.
[[nodiscard]] std::string cuda_absent();

void cuda_upload(void* device, const void* host, int64_t bytes, CudaStream stream);
void cuda_download(void* host, const void* device, int64_t bytes, CudaStream stream);
/// Waits until all that was given to the stream is done.
void cuda_synchronize(CudaStream stream);

/// Memory on the device, 256-byte aligned and not cleared.
class CudaBuffer {
 public:
  CudaBuffer() = default;
  explicit CudaBuffer(int64_t bytes) { reserve(bytes); }
  ~CudaBuffer();
  CudaBuffer(CudaBuffer&& other) noexcept;
  CudaBuffer& operator=(CudaBuffer&& other) noexcept;

  /// At least `bytes`; what lay in it is lost when it must grow.
  void reserve(int64_t bytes);
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

/// What calls on one stream need besides their arguments: memory for partial results, and a way to hand descriptions to
/// the device. Grows to the largest call seen and then allocates nothing. Used by one thread at a time; outlives the
/// work it was given to.
class CudaScratch {
 public:
  CudaScratch() = default;
  ~CudaScratch();
  CudaScratch(const CudaScratch&) = delete;
  CudaScratch& operator=(const CudaScratch&) = delete;

  /// Memory for partial results until the next call for the same stream.
  [[nodiscard]] void* device(int64_t bytes) {
    partials_.reserve(bytes);
    return partials_.data();
  }
  /// Copies `bytes` to the device and returns where they lie until the call after next. The host's copy is free on
  /// return.
  [[nodiscard]] void* upload(const void* host, int64_t bytes, CudaStream stream);

 private:
  struct Slot {
    CudaBuffer device;
    void* pinned = nullptr;
    int64_t bytes = 0;
    CudaEvent copied = nullptr;
  };
  CudaBuffer partials_;
  std::vector<Slot> slots_;
  int64_t next_ = 0;
};

}  // namespace kvarena::kernels
