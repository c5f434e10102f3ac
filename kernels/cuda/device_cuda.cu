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

void cuda_upload(void* device, const void* host, int64_t bytes, CudaStream stream) {
  cuda_check(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream),
             "copying to the device");
}

void cuda_download(void* host, const void* device, int64_t bytes, CudaStream stream) {
  cuda_check(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream),
             "copying from the device");
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

CudaScratch::~CudaScratch() {
  for (Slot& slot : slots_) {
    cudaFreeHost(slot.pinned);
    cudaEventDestroy(slot.copied);
  }
}

void* CudaScratch::upload(const void* host, int64_t bytes, CudaStream stream) {
  constexpr size_t kSlots = 4;  // so that the host can be some calls ahead
  if (slots_.empty()) slots_.resize(kSlots);
  Slot& slot = slots_[static_cast<size_t>(next_++) % kSlots];
  if (slot.copied == nullptr) {
    cuda_check(cudaEventCreateWithFlags(&slot.copied, cudaEventDisableTiming), "making an event");
  } else {
    cuda_check(cudaEventSynchronize(slot.copied), "waiting for an earlier copy");
  }
  if (bytes > slot.bytes) {
    cuda_check(cudaFreeHost(std::exchange(slot.pinned, nullptr)), "freeing pinned memory");
    cuda_check(cudaMallocHost(&slot.pinned, static_cast<size_t>(bytes)), "allocating pinned memory");
    slot.bytes = bytes;
    slot.device.reserve(bytes);
  }
  std::memcpy(slot.pinned, host, static_cast<size_t>(bytes));
  cuda_upload(slot.device.data(), slot.pinned, bytes, stream);
  cuda_check(cudaEventRecord(slot.copied, stream), "recording an event");
  return slot.device.data();
}

}  // namespace kvarena::kernels
