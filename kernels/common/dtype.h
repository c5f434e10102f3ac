#pragma once
// The number formats that cache cells and packed weights are stored in, and exact conversions between them.
//
// Functions here have internal linkage on purpose: this header is also read by files that are compiled for wider
// instruction sets, and a shared inline function could then be linked into code that runs on a machine without them.

#include <bit>
#include <cstdint>

namespace kvarena::kernels {

enum class DType : uint8_t { f32, f16, bf16 };

/// Bytes of one element.
[[nodiscard]] static constexpr int64_t size_of(DType dtype) { return dtype == DType::f32 ? 4 : 2; }

/// "f32", "f16", "bf16".
[[nodiscard]] static constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
  }
  return "?";
}

/// Widens exactly.
[[nodiscard]] static inline float bf16_to_f32(uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16); }

/// Rounds to nearest, ties to even; NaN stays NaN (made quiet), overflow gives infinity.
[[nodiscard]] static inline uint16_t f32_to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/// Widens exactly, subnormals included.
[[nodiscard]] static inline float f16_to_f32(uint16_t x) {
  const uint32_t sign = uint32_t{x & 0x8000u} << 16;
  const uint32_t exponent = (x >> 10) & 0x1fu;
  const uint32_t mantissa = x & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) {  // the quiet bit is set as the hardware does
    return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13) | (mantissa != 0 ? 0x400000u : 0u));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

/// Rounds to nearest, ties to even; above 65504 + half a step gives infinity; NaN stays NaN.
[[nodiscard]] static inline uint16_t f32_to_f16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
  if (a >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (a < 0x38800000u) {  // below 2^-14: adding 0.5 rounds at the right bit, in hardware
    const float shifted = std::bit_cast<float>(a) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = a + 0xfffu + ((a >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

/// Conversions from and to the 16 bits of f16 or bf16.
[[nodiscard]] static inline float half_to_f32(uint16_t x, DType dtype) {
  return dtype == DType::f16 ? f16_to_f32(x) : bf16_to_f32(x);
}
[[nodiscard]] static inline uint16_t f32_to_half(float x, DType dtype) {
  return dtype == DType::f16 ? f32_to_f16(x) : f32_to_bf16(x);
}

/// Element `i` of an array of `dtype`, as float.
[[nodiscard]] static inline float load_element(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::f32: return static_cast<const float*>(data)[i];
    case DType::f16: return f16_to_f32(static_cast<const uint16_t*>(data)[i]);
    case DType::bf16: return bf16_to_f32(static_cast<const uint16_t*>(data)[i]);
  }
  return 0;
}

/// Writes element `i` of an array of `dtype`, rounding to nearest even.
static inline void store_element(void* data, DType dtype, int64_t i, float x) {
  switch (dtype) {
    case DType::f32: static_cast<float*>(data)[i] = x; return;
    case DType::f16: static_cast<uint16_t*>(data)[i] = f32_to_f16(x); return;
    case DType::bf16: static_cast<uint16_t*>(data)[i] = f32_to_bf16(x); return;
  }
}

}  // namespace kvarena::kernels
