#pragma once
// CUDA C++ on the CPU, so that kernels are tested where there is no device: the same .cu files compiled as C++ with
// this header before them (g++ -x c++ -include). Only what our kernels use is here, and floats have no atomics: sums
// would depend on the order of arrival.
//
// Every thread of a block is a fiber; blocks run one after another. Threads, blocks and those that a barrier releases
// run in an order drawn from a seed, each until it must wait, so that a missing barrier shows as a wrong result. A
// launch throws std::logic_error, naming places, when threads wait at different barriers, when a lane named in a mask
// has returned or is elsewhere, or when shared memory is written past its end. Shared and device memory begin as NaN.
//
// There is one device, or as many as the variable KVARENA_EMULATED_DEVICES lists sizes of memory in bytes
// ("1000000,1000000"). Then each has its memory apart: a kernel that reads or writes another device's ends the program.
//
// Work of a stream runs some time after it was given, drawn from the same seed: at the latest when somebody waits for
// it.
// So a stream that reads what another has not been told to wait for, or a host that writes to pinned memory too early,
// shows as a wrong result as well. The default stream is each thread's own. One thread at a time is in here.

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <type_traits>

#include "tests/support/cuda/emulator.h"

// NOLINTBEGIN: the names are CUDA's
#define KVARENA_EMULATED_CUDA
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

struct CUevent_st;

namespace emulated_cuda {

/// A lane's operand in an operation of its whole warp.
struct Words {
  uint32_t w[8];
};
/// Waits until all lanes of `mask` are at this place; returns what each lane brought, [32].
const Words* meet(uint32_t mask, const Words& mine, const std::source_location& where);
/// Waits for all threads of the block that have not returned.
void sync_block(const std::source_location& where);
/// The block's dynamic shared memory.
[[nodiscard]] void* shared_memory();
/// This thread's place in its warp.
[[nodiscard]] uint32_t lane();
/// Ends the launch: `what` is wrong at `where`.
[[noreturn]] void fail(const char* what, const std::source_location& where);

/// Runs `kernel` for every thread of the grid.
void run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& kernel);
/// Starts a kernel as start() does: throws std::logic_error where the stream is not of the calling thread's device.
/// While it runs, no other device's memory can be touched.
void start_kernel(CUstream_st* stream, std::function<void()> kernel);
/// Sets the seed of the order in which threads and blocks run from now on.
void set_seed(uint64_t seed);

template <class T>
[[nodiscard]] Words words_of(T x) {
  static_assert(sizeof(T) <= sizeof(Words) && std::is_trivially_copyable_v<T>);
  Words words{};
  std::memcpy(&words, &x, sizeof(T));
  return words;
}
template <class T>
[[nodiscard]] T value_of(const Words& words) {
  T x;
  std::memcpy(&x, &words, sizeof(T));
  return x;
}
template <class T>
[[nodiscard]] T from_lane(uint32_t mask, T x, uint32_t source, const std::source_location& where) {
  if (source > 31 || (mask >> source & 1) == 0) fail("a shuffle reads a lane outside its mask", where);
  return value_of<T>(meet(mask, words_of(x), where)[source]);
}

/// The tensor cores' product (PTX ISA, mma.m16n8k16): fragments are a[4] and b[2] of this lane.
template <class Widen>
void mma_16x8x16(float (&d)[4], const uint32_t (&fragments)[6], const Widen& widen, const std::source_location& where) {
  Words mine{};
  std::memcpy(&mine, fragments, sizeof(fragments));
  const Words* all = meet(0xffffffffu, mine, where);
  const auto half = [&](uint32_t word, uint32_t i) {
    return widen(static_cast<uint16_t>(i % 2 == 0 ? word : word >> 16));
  };
  float a[2][16], b[2][16];  // the two rows and two columns that meet in this lane's results
  for (uint32_t side = 0; side < 2; ++side) {
    for (uint32_t k = 0; k < 16; ++k) {
      const uint32_t far = k < 8 ? 0 : 1;
      a[side][k] = half(all[lane() / 4 * 4 + k % 8 / 2].w[side + 2 * far], k);
      b[side][k] = half(all[(lane() % 4 * 2 + side) * 4 + k % 8 / 2].w[4 + far], k);
    }
  }
  for (uint32_t i = 0; i < 4; ++i) {
    for (uint32_t k = 0; k < 16; ++k) d[i] = std::fma(a[i / 2][k], b[i % 2][k], d[i]);
  }
}

}  // namespace emulated_cuda

using Where = std::source_location;

inline void __syncthreads(const Where& where = Where::current()) { emulated_cuda::sync_block(where); }
inline void __syncwarp(uint32_t mask = 0xffffffffu, const Where& where = Where::current()) {
  emulated_cuda::meet(mask, {}, where);
}
template <class T>
T __shfl_sync(uint32_t mask, T x, int source, int = 32, const Where& where = Where::current()) {
  return emulated_cuda::from_lane(mask, x, static_cast<uint32_t>(source) & 31u, where);
}
template <class T>
T __shfl_xor_sync(uint32_t mask, T x, int lanes, int = 32, const Where& where = Where::current()) {
  return emulated_cuda::from_lane(mask, x, emulated_cuda::lane() ^ static_cast<uint32_t>(lanes), where);
}
/// Lanes without a partner keep their own.
template <class T>
T __shfl_up_sync(uint32_t mask, T x, unsigned delta, int = 32, const Where& where = Where::current()) {
  const uint32_t lane = emulated_cuda::lane();
  return emulated_cuda::from_lane(mask, x, lane >= delta ? lane - delta : lane, where);
}
inline uint32_t __ballot_sync(uint32_t mask, bool yes, const Where& where = Where::current()) {
  const emulated_cuda::Words* all = emulated_cuda::meet(mask, emulated_cuda::words_of<uint32_t>(yes ? 1 : 0), where);
  uint32_t bits = 0;
  for (uint32_t i = 0; i < 32; ++i) {
    if ((mask >> i & 1) != 0) bits |= all[i].w[0] << i;
  }
  return bits;
}
inline uint32_t __reduce_or_sync(uint32_t mask, uint32_t x, const Where& where = Where::current()) {
  const emulated_cuda::Words* all = emulated_cuda::meet(mask, emulated_cuda::words_of(x), where);
  uint32_t bits = 0;
  for (uint32_t i = 0; i < 32; ++i) {
    if ((mask >> i & 1) != 0) bits |= all[i].w[0];
  }
  return bits;
}
inline uint32_t __reduce_add_sync(uint32_t mask, uint32_t x, const Where& where = Where::current()) {
  const emulated_cuda::Words* all = emulated_cuda::meet(mask, emulated_cuda::words_of(x), where);
  uint32_t sum = 0;
  for (uint32_t i = 0; i < 32; ++i) {
    if ((mask >> i & 1) != 0) sum += all[i].w[0];
  }
  return sum;
}

template <class T>
T atomicAdd(T* at, T x) {
  static_assert(std::is_integral_v<T>, "sums of floats must not depend on who comes first");
  const T before = *at;
  *at += x;
  return before;
}
template <class T>
T atomicOr(T* at, T x) {
  const T before = *at;
  *at |= x;
  return before;
}
template <class T>
T atomicMin(T* at, T x) {
  const T before = *at;
  if (x < before) *at = x;
  return before;
}

inline int __popc(uint32_t x) { return std::popcount(x); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<uint32_t>(x)) + 1; }
inline float __uint_as_float(uint32_t x) { return std::bit_cast<float>(x); }
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
template <class T>
T __ldg(const T* at) {
  return *at;
}

// The runtime's functions, on the host's memory.
struct CUgraph_st;
struct CUgraphExec_st;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraphExec_st*;
enum cudaError_t {
  cudaSuccess,
  cudaErrorMemoryAllocation,
  cudaErrorStreamCaptureUnsupported,
  cudaErrorNotReady,
  cudaErrorInvalidDevice,
  cudaErrorPeerAccessAlreadyEnabled
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
constexpr unsigned cudaEventDisableTiming = 2, cudaStreamNonBlocking = 1;

const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceCanAccessPeer(int* possible, int device, int other);
cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned flags);
cudaError_t cudaGetLastError();
cudaError_t cudaMemGetInfo(size_t* left, size_t* all);
cudaError_t cudaMalloc(void** memory, size_t bytes);
/// Throws std::logic_error when something was written just before or behind the memory.
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** memory, size_t bytes);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to);
// NOLINTEND
