#pragma once
// 8-bit floats of the Open Compute Project (OFP8): e4m3 (1 sign, 4 exponent, 3 mantissa bits, bias 7, no infinity, NaN
// 0x7f) and e5m2 (the upper half of an f16). Conversions saturate, as inference engines do for caches.

#include <cmath>
#include <cstdint>

#include "kernels/common/dtype.h"

namespace kvarena::kernels {

inline constexpr float kLargestE4M3 = 448, kLargestE5M2 = 57344;

/// Exact: the exponents of e4m3 are those of an f16 times 2^-8.
[[nodiscard]] static inline float e4m3_to_f32(uint8_t x) {
  if ((x & 0x7fu) == 0x7fu) return NAN;
  return 256 * f16_to_f32(static_cast<uint16_t>((x & 0x80u) << 8 | (x & 0x7fu) << 7));
}
[[nodiscard]] static inline float e5m2_to_f32(uint8_t x) { return f16_to_f32(static_cast<uint16_t>(x << 8)); }

/// Nearest number with `mantissa` bits, exponents down to `lowest`, at most `largest`; ties to even. NaN gives 0.
[[nodiscard]] static inline uint8_t f32_to_fp8(float x, int mantissa, int lowest, float largest) {
  if (std::isnan(x) || x == 0) return 0;
  const float clamped = std::fmin(std::fabs(x), largest);
  const int exponent = std::ilogb(clamped) < lowest ? lowest : std::ilogb(clamped);
  // In units of the last place; a carry into the next exponent carries into its bits too.
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(clamped, mantissa - exponent)));
  const int code = ((exponent - lowest) << mantissa) + units;
  return static_cast<uint8_t>(code | (std::signbit(x) ? 0x80 : 0));
}
[[nodiscard]] static inline uint8_t f32_to_e4m3(float x) { return f32_to_fp8(x, 3, -6, kLargestE4M3); }
[[nodiscard]] static inline uint8_t f32_to_e5m2(float x) { return f32_to_fp8(x, 2, -14, kLargestE5M2); }

}  // namespace kvarena::kernels
