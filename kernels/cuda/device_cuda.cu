#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "kernels/cuda/runtime.cuh"

namespace kvarena::kernels {

std::string cuda_absent() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return std::string("no CUDA device: ") + cudaGetErrorString(error);
  return count == 0 ? "no CUDA device" : "";
}

int64_t cuda_devices() {
  int count = 0;
  cuda_check(cudaGetDeviceCount(&count), "counting devices");
  return count;
}

CudaDeviceScope::CudaDeviceScope(int64_t device) {
  cuda_check(cudaGetDevice(&former_), "asking for the device");
  if (former_ != device) cuda_check(cudaSetDevice(static_cast<int>(device)), "choosing a device");
}
CudaDeviceScope::~CudaDeviceScope() { cudaSetDevice(former_); }

void cuda_connect(int64_t other) {
  int device = 0, possible = 0;
  cuda_check(cudaGetDevice(&device), "asking for the device");
  cuda_check(cudaDeviceCanAccessPeer(&possible, device, static_cast<int>(other)), "asking for a way between devices");
  if (possible == 0) return;
  const cudaError_t error = cudaDeviceEnablePeerAccess(static_cast<int>(other), 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    (void)cudaGetLastError();  // or a later call reports it
    return;
  }
  cuda_check(error, "opening a way between devices");
}

int64_t cuda_free_bytes() {
  size_t left = 0, all = 0;
  cuda_check(cudaMemGetInfo(&left, &all), "asking for free memory");
  return static_cast<int64_t>(left);
}

void cuda_upload(void* device, const void* host, int64_t bytes, CudaStream stream) {
  cuda_check(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream),
             "copying to the device");
}

void cuda_download(void* host, const void* device, int64_t bytes, CudaStream stream) {
  cuda_check(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream),
             "copying from the device");
}

void cuda_clear(void* device, int64_t bytes, CudaStream stream) {
  cuda_check(cudaMemsetAsync(device, 0, static_cast<size_t>(bytes), stream), "clearing");
}

void cuda_copy(void* to, const void* from, int64_t bytes, CudaStream stream) {
  cuda_check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream), "copying");
}

void cuda_synchronize(CudaStream stream) { cuda_check(cudaStreamSynchronize(stream), "waiting for a stream"); }

CudaBuffer::~CudaBuffer() { cudaFree(data_); }

CudaBuffer::CudaBuffer(CudaBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

CudaBuffer& CudaBuffer::operator=(CudaBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void CudaBuffer::reserve(int64_t bytes) {
  if (bytes <= bytes_) return;
  cuda_check(cudaFree(std::exchange(data_, nullptr)), "freeing memory");
  bytes_ = 0;
  cuda_check(cudaMalloc(&data_, static_cast<size_t>(bytes)), "allocating memory on the device");
  bytes_ = bytes;
}

void CudaBuffer::grow(int64_t bytes) {
  if (bytes > bytes_) reserve(bytes_ == 0 ? bytes : bytes + bytes / 2);
}

PinnedBuffer::PinnedBuffer(int64_t bytes) {
  cuda_check(cudaMallocHost(&data_, static_cast<size_t>(bytes)), "allocating pinned memory");
}
PinnedBuffer::~PinnedBuffer() { cudaFreeHost(data_); }

CudaQueue::CudaQueue() { cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream"); }
CudaQueue::~CudaQueue() { cudaStreamDestroy(stream_); }

CudaMark::CudaMark() { cuda_check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event"); }
CudaMark::~CudaMark() { cudaEventDestroy(event_); }
void CudaMark::record(CudaStream stream) { cuda_check(cudaEventRecord(event_, stream), "recording an event"); }
void CudaMark::hold(CudaStream stream) const {
  cuda_check(cudaStreamWaitEvent(stream, event_, 0), "letting a stream wait for an event");
}
bool CudaMark::reached() const {
  const cudaError_t state = cudaEventQuery(event_);
  if (state == cudaErrorNotReady) return false;
  cuda_check(state, "asking for an event");
  return true;
}
void CudaMark::wait() const { cuda_check(cudaEventSynchronize(event_), "waiting for an event"); }

CudaGraph::CudaGraph(CudaStream stream, const std::function<void()>& body) {
  // Relaxed: a scratch may allocate and copy on other streams meanwhile.
  cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "recording a graph");
  cudaGraph_t graph = nullptr;
  try {
    body();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  cuda_check(cudaStreamEndCapture(stream, &graph), "ending the recording of a graph");
  const cudaError_t error = cudaGraphInstantiate(&graph_, graph, 0);
  cudaGraphDestroy(graph);
  cuda_check(error, "making a graph");
}
CudaGraph::~CudaGraph() { cudaGraphExecDestroy(graph_); }

void CudaGraph::launch(CudaStream stream) const { cuda_check(cudaGraphLaunch(graph_, stream), "starting a graph"); }

namespace {

bool recording(CudaStream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda_check(cudaStreamIsCapturing(stream, &status), "asking for a recording");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

void* CudaScratch::device(int64_t bytes, CudaStream stream) {
  if (recording(stream)) {  // its own memory: that of other calls may grow and move
    kept_.emplace_back(bytes);
    return kept_.back().data();
  }
  partials_.grow(bytes);
  return partials_.data();
}

void* CudaScratch::upload(const void* host, int64_t bytes, CudaStream stream) {
  if (recording(stream)) {
    const CudaQueue aside;
    kept_.emplace_back(bytes);
    cuda_upload(kept_.back().data(), host, bytes, aside.stream());
    cuda_synchronize(aside.stream());
    return kept_.back().data();
  }
  constexpr int64_t kLine = 256;  // bytes, as memory is aligned
  const int64_t size = (bytes + kLine - 1) / kLine * kLine;
  const bool fits = now_ >= 0 && blocks_[now_].used + size <= blocks_[now_].device.bytes();
  if (!fits || blocks_[now_].stream != stream) next_block(size, stream);
  Block& block = blocks_[now_];
  std::byte* const pinned = static_cast<std::byte*>(block.pinned->data()) + block.used;
  std::byte* const device = static_cast<std::byte*>(block.device.data()) + block.used;
  block.used += size;
  block.last = ++uploads_;
  std::memcpy(pinned, host, static_cast<size_t>(bytes));
  cuda_upload(device, pinned, bytes, stream);
  block.copied->record(stream);
  return device;
}

void CudaScratch::next_block(int64_t bytes, CudaStream stream) {
  constexpr int64_t kLeast = 1 << 16;  // bytes
  constexpr int64_t kStay = 32;        // uploads for which a block stays: those of some layers
  const auto make_room = [](Block& block, int64_t wanted) {
    const int64_t had = block.device.bytes();
    if (wanted <= had) return;
    const int64_t room = had == 0 ? wanted : wanted + wanted / 2;
    block.pinned = std::make_unique<PinnedBuffer>(room);
    block.device.reserve(room);
  };
  if (blocks_.empty()) {
    blocks_.resize(2);  // so that small uploads take no memory later
    for (Block& block : blocks_) {
      make_room(block, kLeast);
      block.last = -kStay;
    }
  }
  const auto count = static_cast<int64_t>(blocks_.size());
  const int64_t oldest = now_ + 1 < count ? now_ + 1 : 0;
  const bool free = uploads_ - blocks_[oldest].last >= kStay && blocks_[oldest].copied->reached();
  if (free || count == kBlocks) {
    now_ = oldest;
  } else {
    blocks_.emplace(blocks_.begin() + ++now_);
  }
  Block& block = blocks_[now_];
  block.copied->wait();
  block.used = 0;
  block.stream = stream;
  make_room(block, std::max(bytes, kLeast));
}

}  // namespace kvarena::kernels
