#pragma once
// Host side of a CUDA device: memory, copies, streams. Plain C++; no header of CUDA or libtorch is included.
//
// A failed call throws std::runtime_error that says what was attempted; kernels run asynchronously on their stream, so
// the error of one may show at a later call.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;

namespace kvarena::kernels {

/// cudaStream_t; null is the default stream, each thread's own, which no other waits for.
using CudaStream = CUstream_st*;
/// cudaEvent_t.
using CudaEvent = CUevent_st*;

/// Why no kernel can run here ("no CUDA device: ..."), or empty.
[[nodiscard]] std::string cuda_absent();

/// Devices that this program may use, numbered from 0.
[[nodiscard]] int64_t cuda_devices();

/// The calling thread's device while this lives, after which it is the one before; 0 from the start. Memory, streams
/// and marks are made there, and the default stream is its own. Kernels start on streams of that device alone; copies
/// and waiting work from anywhere.
class CudaDeviceScope {
 public:
  explicit CudaDeviceScope(int64_t device);
  ~CudaDeviceScope();
  CudaDeviceScope(const CudaDeviceScope&) = delete;
  CudaDeviceScope& operator=(const CudaDeviceScope&) = delete;

 private:
  int former_ = 0;
};

/// Copies from the calling thread's device to `other` and back do without the host from now on, where the machine can.
void cuda_connect(int64_t other);

/// Free bytes on the calling thread's device.
[[nodiscard]] int64_t cuda_free_bytes();

void cuda_upload(void* device, const void* host, int64_t bytes, CudaStream stream);
void cuda_download(void* host, const void* device, int64_t bytes, CudaStream stream);
/// Sets `bytes` bytes to 0, queued on the stream.
void cuda_clear(void* device, int64_t bytes, CudaStream stream);
/// Copies between two places, each on any device or in pinned memory.
void cuda_copy(void* to, const void* from, int64_t bytes, CudaStream stream);
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

  /// Makes room for at least `bytes`; the content is lost when it must grow.
  void reserve(int64_t bytes);
  /// Makes room likewise, for half as much again where it had some: memory that has grown once grows from step to step,
  /// and freeing it waits for all streams.
  void grow(int64_t bytes);
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

/// Host memory that the device copies from and to at full speed, and reads in place (gather_entries_cuda takes it).
class PinnedBuffer {
 public:
  explicit PinnedBuffer(int64_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  [[nodiscard]] void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

/// A stream of its own, beside which others run.
class CudaQueue {
 public:
  CudaQueue();
  ~CudaQueue();
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;
  [[nodiscard]] CudaStream stream() const { return stream_; }

 private:
  CudaStream stream_ = nullptr;
};

/// A point in a stream's work that others wait for.
class CudaMark {
 public:
  CudaMark();
  ~CudaMark();
  CudaMark(const CudaMark&) = delete;
  CudaMark& operator=(const CudaMark&) = delete;
  /// Sets the point behind all work given to the stream so far; an earlier point is forgotten.
  void record(CudaStream stream);
  /// Makes work given to `stream` from now on wait for the point. Nothing waits for a mark that was never recorded.
  void hold(CudaStream stream) const;
  /// Whether wait() would return at once.
  [[nodiscard]] bool reached() const;
  void wait() const;

 private:
  CudaEvent event_ = nullptr;
};

/// Work recorded once and started again and again without the host's part of it: a decoding step is a hundred kernels
/// of a few microseconds each.
class CudaGraph {
 public:
  /// Records what `body` queues on `stream` (not the default stream) instead of running it. Arguments are those of the
  /// recording: descriptions that a CudaScratch uploads meanwhile are constants of the graph and live as long as the
  /// scratch does.
  CudaGraph(CudaStream stream, const std::function<void()>& body);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  void launch(CudaStream stream) const;

 private:
  CUgraphExec_st* graph_ = nullptr;
};

/// Scratch memory of calls on one stream: for partial results, and to upload descriptions. Grows to the largest call
/// seen and then allocates nothing. Used by one thread at a time; outlives the work it was given to.
class CudaScratch {
 public:
  CudaScratch() = default;
  CudaScratch(const CudaScratch&) = delete;
  CudaScratch& operator=(const CudaScratch&) = delete;

  /// Memory for partial results, valid until the next call for the same stream. In a graph it is the call's own.
  [[nodiscard]] void* device(int64_t bytes, CudaStream stream);
  /// Copies `bytes` to the device and returns where they lie until the call after next (in a graph for good). The
  /// host's copy is free on return. Waits for an earlier copy where the host is kBlocks of memory ahead of the device.
  [[nodiscard]] void* upload(const void* host, int64_t bytes, CudaStream stream);

 private:
  static constexpr int64_t kBlocks = 64;
  /// Memory for small uploads one behind the other, or for a large one.
  struct Block {
    CudaBuffer device;
    std::unique_ptr<PinnedBuffer> pinned;                             // of the same size
    int64_t used = 0;                                                 // bytes
    int64_t last = 0;                                                 // upload() that used it last
    CudaStream stream = nullptr;                                      // of all its uploads
    std::unique_ptr<CudaMark> copied = std::make_unique<CudaMark>();  // all that it was used for
  };
  /// Goes on to a block with room for so many bytes: the one used longest ago, or a new one behind this one.
  void next_block(int64_t bytes, CudaStream stream);

  CudaBuffer partials_;
  std::vector<CudaBuffer> kept_;  // memory that graphs use
  std::vector<Block> blocks_;     // used in turn
  int64_t now_ = -1;              // that one
  int64_t uploads_ = 0;
};

}  // namespace kvarena::kernels
