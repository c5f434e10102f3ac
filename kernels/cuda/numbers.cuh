#pragma once
// Stored formats on the device, reads of 16 bytes, and sums over a warp.

#include "kernels/common/dtype.h"
#include "kernels/cuda/runtime.cuh"

namespace kvarena::kernels {

struct F32 {
  using Stored = float;
  __device__ static float widen(float x) { return x; }
  __device__ static float narrow(float x) { return x; }
};

#if defined(__CUDACC__)
__device__ __forceinline__ float half_bits_to_float(uint16_t x) { return __half2float(__ushort_as_half(x)); }
__device__ __forceinline__ uint16_t float_to_half_bits(float x) { return __half_as_ushort(__float2half_rn(x)); }
__device__ __forceinline__ uint16_t float_to_bfloat_bits(float x) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
#else
inline float half_bits_to_float(uint16_t x) { return f16_to_f32(x); }
inline uint16_t float_to_half_bits(float x) { return f32_to_f16(x); }
inline uint16_t float_to_bfloat_bits(float x) { return f32_to_bf16(x); }
#endif

struct F16 {
  using Stored = uint16_t;
  __device__ static float widen(uint16_t x) { return half_bits_to_float(x); }
  __device__ static uint16_t narrow(float x) { return float_to_half_bits(x); }
};
struct BF16 {
  using Stored = uint16_t;
  __device__ static float widen(uint16_t x) { return __uint_as_float(uint32_t{x} << 16); }
  __device__ static uint16_t narrow(float x) { return float_to_bfloat_bits(x); }
};

/// Calls body with F32, F16 or BF16.
template <class Body>
void with_format(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::f32: return body(F32{});
    case DType::f16: return body(F16{});
    case DType::bf16: return body(BF16{});
  }
}

/// How many numbers fit 16 bytes.
template <class T>
inline constexpr int kVector = 16 / static_cast<int>(sizeof(typename T::Stored));

__device__ __forceinline__ uint4 load_16_bytes(const void* at) {
#if defined(KVARENA_EMULATED_CUDA)
  if (reinterpret_cast<uintptr_t>(at) % 16 != 0) emulated_cuda::fail("16 bytes off their alignment", Where::current());
#endif
  return *static_cast<const uint4*>(at);
}

/// Reads 16 bytes that are read only once, without evicting cache lines that others share.
__device__ __forceinline__ uint4 stream_16_bytes(const void* at) {
#if defined(__CUDACC__)
  return __ldcs(static_cast<const uint4*>(at));
#else
  return load_16_bytes(at);
#endif
}

/// Word `i` of four; i is known when compiling.
__device__ __forceinline__ uint32_t word_of(const uint4& words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

/// 16 aligned bytes as numbers.
template <class T>
__device__ __forceinline__ void load_vector(const typename T::Stored* at, float (&x)[kVector<T>]) {
  const uint4 bits = load_16_bytes(at);
  const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(typename T::Stored) == 4) {
      x[i] = __uint_as_float(words[i]);
    } else {
      x[2 * i] = T::widen(static_cast<uint16_t>(words[i] & 0xffffu));
      x[2 * i + 1] = T::widen(static_cast<uint16_t>(words[i] >> 16));
    }
  }
}

/// The 16-bit number `at[i]` of either format.
__device__ __forceinline__ float load_meta(const uint16_t* at, int64_t i, DType meta) {
  return meta == DType::f16 ? F16::widen(at[i]) : BF16::widen(at[i]);
}

/// Sum over the lanes of a warp; every lane gets the same bits.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int width = 16; width > 0; width /= 2) x += __shfl_xor_sync(kAllLanes, x, width);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int width = 16; width > 0; width /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, width));
  return x;
}
__device__ __forceinline__ float warp_min(float x) {
#pragma unroll
  for (int width = 16; width > 0; width /= 2) x = fminf(x, __shfl_xor_sync(kAllLanes, x, width));
  return x;
}

}  // namespace kvarena::kernels
