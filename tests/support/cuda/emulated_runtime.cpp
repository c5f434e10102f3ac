// The runtime: devices, memory, streams, graphs and events.
#include <chrono>
#include <cstdlib>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/support/cuda/emulated_devices.h"
#include "tests/support/cuda/emulated_memory.h"

// NOLINTBEGIN: the names are CUDA's
using namespace emulated_cuda;

struct CUgraph_st {
  std::vector<std::function<void()>> work;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> work;
};
struct CUevent_st {
  int device = 0;
  CUstream_st* stream = nullptr;       // stream on which it was recorded last
  uint64_t recorded = 0, reached = 0;  // how often
  std::chrono::steady_clock::time_point at;
};
struct CUstream_st {
  struct Work {
    std::function<void()> run;
    CUevent_st* awaited = nullptr;  // null, or what must be reached before
    uint64_t recorded = 0;
  };
  int device = 0;
  CUgraph_st* recording = nullptr;
  std::deque<Work> waiting;
};

namespace {

std::recursive_mutex the_runtime;  // held in every call
using Lock = std::lock_guard<std::recursive_mutex>;
std::set<CUstream_st*> streams;
bool lazy = false;
std::map<const unsigned char*, size_t> pinned;  // address and bytes of each block
thread_local int chosen_device = 0;             // of the calling thread
thread_local Waits waited;                      // by it
long between_devices = 0, taken = 0, most_taken = std::numeric_limits<long>::max();

void drain(CUstream_st& stream);

/// Default streams of one thread, by device.
class OwnStreams {
 public:
  OwnStreams() = default;
  ~OwnStreams() {
    const Lock lock(the_runtime);
    for (auto& [device, stream] : own_) {
      drain(stream);
      streams.erase(&stream);
    }
  }
  OwnStreams(const OwnStreams&) = delete;
  OwnStreams& operator=(const OwnStreams&) = delete;
  [[nodiscard]] CUstream_st* on(int device) {
    const auto [found, made] = own_.try_emplace(device);
    found->second.device = device;
    if (made) streams.insert(&found->second);
    return &found->second;
  }

 private:
  std::map<int, CUstream_st> own_;
};

/// The stream that a call means: of null, the calling thread's own on its device.
CUstream_st* meant(CUstream_st* stream) {
  static thread_local OwnStreams own;
  return stream == nullptr ? own.on(chosen_device) : stream;
}

/// The device whose memory it is; -1 for the host's.
int device_of(const void* memory) {
  for (int i = 0; const DeviceArena& arena : device_arenas()) {
    if (arena.holds(memory)) return i;
    ++i;
  }
  return -1;
}

/// Does the first thing that the stream has to do; false when it must wait for another.
bool advance(CUstream_st& stream) {
  const CUstream_st::Work& first = stream.waiting.front();
  if (first.awaited != nullptr && first.awaited->reached < first.recorded) return false;
  const std::function<void()> run = first.run;
  stream.waiting.pop_front();
  run();
  return true;
}

void reach(CUevent_st& event, uint64_t recorded) {
  while (event.reached < recorded) {
    CUstream_st& stream = *event.stream;
    if (stream.waiting.empty()) throw std::logic_error("emulated CUDA: an event that is never reached");
    if (advance(stream)) continue;
    const CUstream_st::Work& first = stream.waiting.front();
    reach(*first.awaited, first.recorded);
  }
}

void drain(CUstream_st& stream) {
  while (!stream.waiting.empty()) {
    if (advance(stream)) continue;
    const CUstream_st::Work& first = stream.waiting.front();
    reach(*first.awaited, first.recorded);
  }
}
void drain_all() {
  for (CUstream_st* stream : streams) drain(*stream);
}

/// Some of what streams have to do, of any of them.
void advance_some() {
  while (!lazy && !streams.empty() && drawn() % 3 != 0) {
    auto stream = streams.begin();
    std::advance(stream, static_cast<ptrdiff_t>(drawn() % streams.size()));
    if (!(*stream)->waiting.empty()) advance(**stream);
  }
}

bool is_pinned(const void* memory) {
  const auto* at = static_cast<const unsigned char*>(memory);
  const auto behind = pinned.upper_bound(at);
  return behind != pinned.begin() && at < std::prev(behind)->first + std::prev(behind)->second;
}

}  // namespace

void emulated_cuda::start(CUstream_st* stream, std::function<void()> work) {
  const Lock lock(the_runtime);
  stream = meant(stream);
  if (stream->recording != nullptr) {
    stream->recording->work.push_back(std::move(work));
    return;
  }
  stream->waiting.push_back({std::move(work)});
  advance_some();
}

void emulated_cuda::start_kernel(CUstream_st* stream, std::function<void()> kernel) {
  const int device = stream == nullptr ? chosen_device : stream->device;
  if (device != chosen_device) throw std::logic_error("emulated CUDA: a kernel on a stream of another device");
  start(stream, [device, kernel = std::move(kernel)] {
    const OnlyDevice alone(device);
    kernel();
  });
}

bool emulated_cuda::here() { return true; }
long emulated_cuda::copies_between_devices() { return between_devices; }
Waits emulated_cuda::waits() { return waited; }

long emulated_cuda::taken_bytes() {
  const Lock lock(the_runtime);
  return taken;
}

void emulated_cuda::set_memory(long bytes) {
  const Lock lock(the_runtime);
  most_taken = bytes;
}

void emulated_cuda::set_lazy(bool on) {
  const Lock lock(the_runtime);
  lazy = on;
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorPeerAccessAlreadyEnabled: return "peer access is already enabled";
  }
  return "?";
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = std::max(1, static_cast<int>(device_arenas().size()));
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  int count = 0;
  cudaGetDeviceCount(&count);
  if (device < 0 || device >= count) return cudaErrorInvalidDevice;
  chosen_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = chosen_device;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* possible, int device, int other) {
  *possible = device != other ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned) {
  const Lock lock(the_runtime);
  static std::set<std::pair<int, int>> enabled;
  return enabled.insert({chosen_device, other}).second ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }

/// Reports the memory of a small device where there is but one.
cudaError_t cudaMemGetInfo(size_t* left, size_t* all) {
  const Lock lock(the_runtime);
  *left = *all = size_t{256} << 10;
  if (device_arenas().empty()) return cudaSuccess;
  const DeviceArena& arena = device_arenas()[static_cast<size_t>(chosen_device)];
  *left = arena.left();
  *all = arena.bytes();
  return cudaSuccess;
}

// Before the memory: its size and a guard; behind it another guard.
constexpr size_t kHeadBytes = 256;

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const Lock lock(the_runtime);
  ++waited.allocations;
  if (taken + static_cast<long>(bytes) > most_taken) return cudaErrorMemoryAllocation;
  const size_t all = (kHeadBytes + bytes + kGuardBytes + kHeadBytes - 1) / kHeadBytes * kHeadBytes;
  auto* whole = device_arenas().empty() ? static_cast<unsigned char*>(std::aligned_alloc(kHeadBytes, all))
                                        : device_arenas()[static_cast<size_t>(chosen_device)].allocate(all);
  if (whole == nullptr) return cudaErrorMemoryAllocation;
  std::memcpy(whole, &bytes, sizeof(bytes));
  std::memset(whole + kHeadBytes - kGuardBytes, kGuard, kGuardBytes);
  std::memset(whole + kHeadBytes, kPoison, bytes);
  std::memset(whole + kHeadBytes + bytes, kGuard, kGuardBytes);
  taken += static_cast<long>(bytes);
  *memory = whole + kHeadBytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  const Lock lock(the_runtime);
  ++waited.releases;
  drain_all();
  unsigned char* whole = static_cast<unsigned char*>(memory) - kHeadBytes;
  size_t bytes = 0;
  std::memcpy(&bytes, whole, sizeof(bytes));
  taken -= static_cast<long>(bytes);
  require_guard(whole + kHeadBytes - kGuardBytes, "device memory, before it");
  require_guard(whole + kHeadBytes + bytes, "device memory, behind it");
  if (const int device = device_of(memory); device >= 0) {
    device_arenas()[static_cast<size_t>(device)].free(whole);
  } else {
    std::free(whole);
  }
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  const Lock lock(the_runtime);
  ++waited.pinned_allocations;
  *memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (*memory == nullptr) return cudaErrorMemoryAllocation;
  pinned[static_cast<unsigned char*>(*memory)] = bytes;
  std::memset(*memory, kPoison, bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  const Lock lock(the_runtime);
  ++waited.pinned_releases;
  drain_all();
  pinned.erase(static_cast<unsigned char*>(memory));
  std::free(memory);
  return cudaSuccess;
}
/// Copies from or to ordinary memory are complete when the call returns.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const Lock lock(the_runtime);
  if (bytes == 0) return cudaSuccess;  // from or to nowhere, perhaps
  const bool recording = stream != nullptr && stream->recording != nullptr;
  if (device_of(to) >= 0 && device_of(from) >= 0 && device_of(to) != device_of(from)) ++between_devices;
  if (kind == cudaMemcpyHostToDevice && !recording && !is_pinned(from)) {
    const auto* begin = static_cast<const unsigned char*>(from);
    start(stream,
          [to, copy = std::vector<unsigned char>(begin, begin + bytes)] { std::memcpy(to, copy.data(), copy.size()); });
    return cudaSuccess;
  }
  start(stream, [=] { std::memcpy(to, from, bytes); });
  if (kind == cudaMemcpyDeviceToHost && !recording && !is_pinned(to)) drain(*meant(stream));
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  start(stream, [=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const Lock lock(the_runtime);
  *stream = new CUstream_st{.device = chosen_device};
  streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock(the_runtime);
  drain(*stream);
  streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Lock lock(the_runtime);
  ++waited.streams;
  stream = meant(stream);
  if (stream->recording != nullptr) return cudaErrorStreamCaptureUnsupported;
  drain(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr || stream->recording != nullptr) return cudaErrorStreamCaptureUnsupported;
  stream->recording = new CUgraph_st;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const bool recording = stream != nullptr && stream->recording != nullptr;
  *status = recording ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = std::exchange(stream->recording, nullptr);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const std::function<void()>& work : executable->work) start(stream, work);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const Lock lock(the_runtime);
  delete executable;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st{.device = chosen_device};
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Lock lock(the_runtime);
  drain_all();  // whoever waits for it
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock(the_runtime);
  stream = meant(stream);
  if (event->device != stream->device)
    throw std::logic_error("emulated CUDA: a stream of another device than its event");
  event->stream = stream;
  const uint64_t recorded = ++event->recorded;
  start(stream, [event, recorded] {
    event->reached = recorded;
    event->at = std::chrono::steady_clock::now();
  });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Lock lock(the_runtime);
  if (event->reached < event->recorded) ++waited.events;
  reach(*event, event->recorded);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Lock lock(the_runtime);
  advance_some();
  return event->reached < event->recorded ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Lock lock(the_runtime);
  stream = meant(stream);
  if (stream->recording != nullptr) return cudaErrorStreamCaptureUnsupported;
  stream->waiting.push_back({[] {}, event, event->recorded});
  advance_some();
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const Lock lock(the_runtime);
  *milliseconds = std::chrono::duration<float, std::milli>(to->at - from->at).count();
  return cudaSuccess;
}
// NOLINTEND
