#pragma once
// Tensor cores: the product of a 16x16 and a 16x8 matrix of 16-bit numbers, added to 16x8 floats that a warp holds.
//
// With g = lane / 4 and t = lane % 4 (PTX ISA, m16n8k16):
//   a.x  row g,     columns 2t, 2t+1      a.z  row g,     columns 2t+8, 2t+9
//   a.y  row g + 8, columns 2t, 2t+1      a.w  row g + 8, columns 2t+8, 2t+9
//   b0   rows 2t, 2t+1, column g          b1   rows 2t+8, 2t+9, column g
//   d    row g, columns 2t, 2t+1; row g + 8, columns 2t, 2t+1

#include <type_traits>

#include "kernels/cuda/numbers.cuh"

namespace kvarena::kernels {

template <class T>
__device__ __forceinline__ void mma_16x8x16(float (&d)[4], const uint4& a, uint32_t b0, uint32_t b1) {
#if defined(KVARENA_EMULATED_CUDA)
  const uint32_t fragments[6] = {a.x, a.y, a.z, a.w, b0, b1};
  emulated_cuda::mma_16x8x16(
      d, fragments, [](uint16_t x) { return T::widen(x); }, Where::current());
#else
  if constexpr (std::is_same_v<T, BF16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
  }
#endif
}

/// Two floats, each as the sum of two numbers of T: the high and the low parts, two to a word.
struct SplitPair {
  uint32_t high, low;
};
template <class T>
__device__ __forceinline__ SplitPair split_pair(float x, float y) {
  const uint16_t x_high = T::narrow(x), y_high = T::narrow(y);
  const uint16_t x_low = T::narrow(x - T::widen(x_high)), y_low = T::narrow(y - T::widen(y_high));
  return {x_high | uint32_t{y_high} << 16, x_low | uint32_t{y_low} << 16};
}

/// The left factor of four columns of 8 rows: high parts in rows 0-7, low parts in rows 8-15. The product's rows g and
/// g + 8, which one lane holds, then add up to the product of row g, to 16 (bf16) or 21 (f16) bits of the factor.
template <class T>
__device__ __forceinline__ uint4 split_fragment(float x0, float x1, float x2, float x3) {
  const SplitPair first = split_pair<T>(x0, x1), second = split_pair<T>(x2, x3);
  return {first.high, first.low, second.high, second.low};
}

/// Halfword `i` of a and of b, two to a word.
__device__ __forceinline__ uint32_t pair_halves(uint32_t a, uint32_t b, bool upper) {
  return upper ? (a >> 16) | (b & 0xffff0000u) : (a & 0xffffu) | (b << 16);
}

/// Subtracts `x`, which is a bf16 number exactly, from two bf16 numbers.
__device__ __forceinline__ uint32_t subtract_bfloat_pair(uint32_t pair, float x) {
#if defined(__CUDACC__)
  const __nv_bfloat162 numbers = *reinterpret_cast<const __nv_bfloat162*>(&pair);
  const __nv_bfloat162 difference = __hsub2(numbers, __float2bfloat162_rn(x));
  return *reinterpret_cast<const uint32_t*>(&difference);
#else
  const auto less = [x](uint32_t bits) { return uint32_t{BF16::narrow(BF16::widen(static_cast<uint16_t>(bits)) - x)}; };
  return less(pair & 0xffffu) | less(pair >> 16) << 16;
#endif
}

}  // namespace kvarena::kernels
