#pragma once
// MXFP4, as gpt-oss's experts are published: numbers of 4 bits, 32 under one exponent (OCP Microscaling Formats 1.0).

#include <array>
#include <cmath>
#include <cstdint>

namespace kvarena {

inline constexpr int64_t kMxfp4Block = 32;  // numbers under one exponent

/// One sign, two exponent bits and one of mantissa.
inline constexpr std::array<float, 16> kMxfp4Numbers = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                                        -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

/// The factor that an exponent's byte stands for.
inline float mxfp4_scale(uint8_t exponent) { return std::ldexp(1.0F, exponent - 127); }

}  // namespace kvarena
