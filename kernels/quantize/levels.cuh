#pragma once
// Codes of packed entries on the device: cutting them out of their planes, and what they stand for.

#include "kernels/cuda/numbers.cuh"
#include "kernels/quantize/fp4.h"
#include "kernels/quantize/quantize.h"

namespace kvarena::kernels {

/// The codes that begin at bit `bit` of lanes lane .. lane+3 of a cell's planes [planes][16]; lane is a multiple of 4.
__device__ __forceinline__ void load_codes(const uint32_t* planes, int bit, int bits, int lane, uint32_t (&codes)[4]) {
  const uint32_t* at = planes + bit / 32 * static_cast<int>(kCell) + lane;
  const int shift = bit % 32;
  const uint32_t mask = (1u << bits) - 1;
  const uint4 low = load_16_bytes(at);
  codes[0] = low.x >> shift;
  codes[1] = low.y >> shift;
  codes[2] = low.z >> shift;
  codes[3] = low.w >> shift;
  if (shift + bits > 32) {
    const uint4 high = load_16_bytes(at + kCell);
    codes[0] |= high.x << (32 - shift);
    codes[1] |= high.y << (32 - shift);
    codes[2] |= high.z << (32 - shift);
    codes[3] |= high.w << (32 - shift);
  }
#pragma unroll
  for (uint32_t& code : codes) code &= mask;
}

__device__ __forceinline__ float e4m3_at(uint32_t code) {
  if ((code & 0x7fu) == 0x7fu) return __uint_as_float(0x7fc00000u);
  return 256 * F16::widen(static_cast<uint16_t>((code & 0x80u) << 8 | (code & 0x7fu) << 7));
}

/// level_of() of quantize.h.
__device__ __forceinline__ float level_at(const QuantFormat& format, uint32_t code) {
  switch (format.levels) {
    case Levels::uniform: return static_cast<float>(static_cast<int>(code) + format.first_level);
    case Levels::codebook: return format.codebook[code];
    case Levels::e4m3: return e4m3_at(code);
    case Levels::e5m2: return F16::widen(static_cast<uint16_t>(code << 8));
  }
  return 0;
}

__device__ __forceinline__ float scale_at(const PackedEntries& packed, int64_t at) {
  if (has_byte_scales(packed.format)) {
    const uint8_t byte = reinterpret_cast<const uint8_t*>(packed.scale)[at];
    return packed.format.rule == QuantRule::mx ? e8m0_to_f32(byte) : e4m3_at(byte);
  }
  return packed.scale == nullptr ? 1.0f : load_meta(packed.scale, at, packed.format.meta);
}
__device__ __forceinline__ float zero_at(const PackedEntries& packed, int64_t at) {
  return packed.zero == nullptr ? 0.0f : load_meta(packed.zero, at, packed.format.meta);
}
/// The number that `code` stands for in the group whose scale and zero lie at `at`.
__device__ __forceinline__ float decoded(const PackedEntries& packed, int64_t at, uint32_t code) {
  return fmaf(scale_at(packed, at), level_at(packed.format, code), zero_at(packed, at));
}

}  // namespace kvarena::kernels
