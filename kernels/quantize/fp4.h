#pragma once
// 4-bit floats (e2m1: 1 sign, 2 exponent, 1 mantissa bit, bias 1) in blocks, and the powers of two that scale blocks of
// the Open Compute Project's MX formats (e8m0: the exponent of an f32 alone).

#include <bit>
#include <cstdint>

namespace kvarena::kernels {

/// Numbers of e2m1 in the order of their codes.
inline constexpr float kLevelsE2M1[16] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
inline constexpr float kLargestE2M1 = 6;

/// The code of the level nearest to x, ties to the even code; what is larger than all saturates. `levels` are
/// kLevelsE2M1 or their multiples.
[[nodiscard]] static constexpr uint8_t nearest_e2m1(const float* levels, float x) {
  const float size = x < 0 ? -x : x;
  uint8_t code = 0;
  while (code < 7) {
    const float middle = (levels[code] + levels[code + 1]) / 2;
    if (!(size > middle || (size == middle && code % 2 == 1))) break;
    ++code;
  }
  return static_cast<uint8_t>(code | (x < 0 ? 8 : 0));
}

[[nodiscard]] static constexpr uint32_t exponent_bits(float x) { return std::bit_cast<uint32_t>(x) >> 23 & 0xffU; }
/// The power of two that e8m0 holds as `code`, 1 to 254.
[[nodiscard]] static constexpr float e8m0_to_f32(uint8_t code) {
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 23);
}
/// The scale of a block whose largest magnitude is `largest`: the power of two not above it over the one not above
/// `top`, the largest level (OCP MX 1.0, section 6.3); at least 2^-126, the smallest that is a normal f32.
[[nodiscard]] static constexpr float power_of_two_scale(float largest, float top) {
  const int code = static_cast<int>(exponent_bits(largest)) - static_cast<int>(exponent_bits(top)) + 127;
  return e8m0_to_f32(static_cast<uint8_t>(code < 1 ? 1 : code));
}

}  // namespace kvarena::kernels
