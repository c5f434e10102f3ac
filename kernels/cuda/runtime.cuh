#pragma once
// First include of every .cu file: CUDA under nvcc, or the emulator that tests put before the file when they compile it
// as C++ (tests/support/cuda). Kernels are started by launch() and take all shared memory from shared_memory().
//
// Kernels are compiled with -fmad=false: a product and a sum are fused only where the source says fmaf, so a row has
// the same bits in every instantiation.

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#elif !defined(KVARENA_EMULATED_CUDA)
#error "compile with nvcc, or with tests/support/cuda/emulated_cuda.h included before"
#endif

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "kernels/cuda/device.h"

namespace kvarena::kernels {

inline void cuda_check(cudaError_t error, const char* attempted) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string("CUDA: ") + attempted + ": " + cudaGetErrorString(error));
}

inline constexpr unsigned kWarp = 32, kAllLanes = 0xffffffffu;

#if defined(__CUDACC__)

extern __shared__ uint4 kvarena_shared_memory[];
template <class T>
__device__ __forceinline__ T* shared_memory() {
  return reinterpret_cast<T*>(kvarena_shared_memory);
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, int64_t shared_bytes, CudaStream stream,
            const Arguments&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  constexpr int64_t kWithoutAsking = 48 * 1024;
  if (shared_bytes > kWithoutAsking) {
    cuda_check(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
        "asking for shared memory");
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  cuda_check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), "starting a kernel");
}

#else

template <class T>
T* shared_memory() {
  return static_cast<T*>(emulated_cuda::shared_memory());
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, int64_t shared_bytes, CudaStream stream,
            const Arguments&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  emulated_cuda::start_kernel(stream, [=] {
    emulated_cuda::run(grid, block, static_cast<size_t>(shared_bytes),
                       [&] { kernel(static_cast<Parameters>(arguments)...); });
  });
}

#endif

/// Starts `kernel` with `blocks` blocks for each of `items` (heads, mostly): block x of item y. Does nothing for none.
template <class Item>
void launch_items(void (*kernel)(const Item*), std::span<const Item> items, int64_t blocks, int64_t threads,
                  int64_t shared_bytes, CudaScratch& scratch, CudaStream stream) {
  if (items.empty() || blocks <= 0) return;
  const auto* device =
      static_cast<const Item*>(scratch.upload(items.data(), static_cast<int64_t>(items.size_bytes()), stream));
  launch(kernel, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(items.size())),
         static_cast<unsigned>(threads), shared_bytes, stream, device);
}

/// Blocks that `count` items need.
[[nodiscard]] constexpr unsigned blocks_for(int64_t count, int64_t per_block) {
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

}  // namespace kvarena::kernels
