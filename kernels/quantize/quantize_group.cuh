#pragma once
// The rules of quantize.h for one group on the device, by one thread: the operations of quantize_group.cpp in its
// order, so that codes and meta have its bits.

#include "kernels/quantize/fp8.h"
#include "kernels/quantize/levels.cuh"

namespace kvarena::kernels {

__device__ __forceinline__ float round_even(float x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
  return fabsf(x) < 4194304.0f ? (x + kMagic) - kMagic : x;
}
/// Clamps x to 0 .. top; NaN becomes 0.
__device__ __forceinline__ float saturated(float x, float top) { return x > 0 ? (x < top ? x : top) : 0.0f; }

__device__ __forceinline__ uint16_t to_meta(float x, DType meta) {
  return meta == DType::f16 ? F16::narrow(x) : BF16::narrow(x);
}
__device__ __forceinline__ float rounded_meta(float x, DType meta) {
  const uint16_t bits = to_meta(x, meta);
  return load_meta(&bits, 0, meta);
}
__device__ __forceinline__ float top_code(const QuantFormat& format) {
  return static_cast<float>((1 << format.bits) - 1);
}

__device__ __forceinline__ float half_codes(const QuantFormat& format) {
  return static_cast<float>(1 << (format.bits - 1));
}

__device__ inline float largest_level(const QuantFormat& format) {
  switch (format.levels) {
    case Levels::uniform: return top_code(format) + static_cast<float>(format.first_level);
    case Levels::codebook: return format.codebook[(1 << format.bits) - 1];
    case Levels::e4m3: return kLargestE4M3;
    case Levels::e5m2: return kLargestE5M2;
  }
  return 1;
}

/// f32_to_fp8() of fp8.h.
__device__ inline uint8_t to_fp8(float x, int mantissa, int lowest, float largest) {
  if (x != x || x == 0) return 0;
  const float clamped = fminf(fabsf(x), largest);
  const int own = ilogbf(clamped), exponent = own < lowest ? lowest : own;
  const int units = static_cast<int>(rintf(ldexpf(clamped, mantissa - exponent)));
  return static_cast<uint8_t>((((exponent - lowest) << mantissa) + units) |
                              ((__float_as_uint(x) >> 31) != 0 ? 0x80 : 0));
}

/// The code of the level nearest to x.
__device__ inline uint8_t nearest_code(const QuantFormat& format, float x) {
  switch (format.levels) {
    case Levels::uniform:
      return static_cast<uint8_t>(round_even(saturated(x - static_cast<float>(format.first_level), top_code(format))));
    case Levels::codebook: {
      int code = 0;
      while (code + 1 < 1 << format.bits && x > (format.codebook[code] + format.codebook[code + 1]) / 2) ++code;
      return static_cast<uint8_t>(code);
    }
    case Levels::e4m3: return to_fp8(x, 3, -6, kLargestE4M3);
    case Levels::e5m2: return to_fp8(x, 2, -14, kLargestE5M2);
  }
  return 0;
}

/// The code of the level nearest to x; between two levels the upper one.
__device__ inline uint8_t nearest_above(const QuantFormat& format, float x) {
  int code = 0;
  while (code + 1 < 1 << format.bits && !(x - format.codebook[code] < format.codebook[code + 1] - x)) ++code;
  return static_cast<uint8_t>(code);
}

/// Encoder of one group's numbers, and the scale and zero stored for the group.
struct GroupCoder {
  enum class Kind : uint8_t {
    constant,
    given,
    zero_point,
    whole_zero,
    ggml_q8,
    ggml_signed,
    ggml_range,
    ggml_fit,
    block
  };
  Kind kind = Kind::given;
  float scale = 1, zero = 0;  // as the rule gives them, unrounded where it says so
  float stored_scale = 1, stored_zero = 0;

  __device__ uint8_t code(const QuantFormat& format, float x) const {
    switch (kind) {
      case Kind::constant: return nearest_code(format, 0);
      case Kind::given: return nearest_code(format, (x - zero) / scale);
      case Kind::zero_point: return static_cast<uint8_t>(round_even(saturated(x / scale + zero, top_code(format))));
      case Kind::whole_zero:
        return static_cast<uint8_t>(round_even(saturated(round_even(x / scale) + zero, top_code(format))));
      case Kind::ggml_q8:
        return static_cast<uint8_t>(
            saturated(roundf(x * scale) - static_cast<float>(format.first_level), top_code(format)));
      case Kind::ggml_signed:
        return static_cast<uint8_t>(saturated(truncf(x * scale + (half_codes(format) + 0.5f)), top_code(format)));
      case Kind::ggml_range:
        return static_cast<uint8_t>(saturated(truncf((x - zero) * scale + 0.5f), top_code(format)));
      case Kind::ggml_fit: return nearest_above(format, scale * x);
      case Kind::block: return scale == 0 ? uint8_t{0} : nearest_e2m1(format.codebook, x / scale);
    }
    return 0;
  }
};

/// Numbers x[0], x[stride], ... of one group.
struct DeviceGroup {
  const float* x;
  int64_t count, stride;
  __device__ float at(int64_t i) const { return x[i * stride]; }
};

__device__ inline GroupCoder code_range(const DeviceGroup& group, const QuantFormat& format) {
  using Kind = GroupCoder::Kind;
  float low = group.at(0), high = low;
  for (int64_t i = 1; i < group.count; ++i) {
    const float x = group.at(i);
    low = x < low ? x : low;
    high = high < x ? x : high;
  }
  low *= format.clip;
  high *= format.clip;
  const GroupCoder constant{Kind::constant, 1, 0, 1, rounded_meta(group.at(0), format.meta)};
  const float steps = (high - low) / top_code(format);
  if (format.rule == QuantRule::ggml_range) {
    if (steps == 0) return constant;
    return {Kind::ggml_range, 1 / steps, low, rounded_meta(steps, format.meta), rounded_meta(low, format.meta)};
  }
  if (format.rule == QuantRule::minimum || format.rule == QuantRule::midpoint) {
    const bool midpoint = format.rule == QuantRule::midpoint;
    const float parts = top_code(format) + 1;
    const float zero = rounded_meta(midpoint ? ((2 * parts - 1) * low + high) / (2 * parts) : low, format.meta);
    const float scale = rounded_meta(midpoint ? (high - low) / parts : steps, format.meta);
    return scale == 0 ? constant : GroupCoder{Kind::given, scale, zero, scale, zero};
  }
  const bool whole = format.rule == QuantRule::whole_zero;
  const float scale = rounded_meta(steps, format.meta);
  if (scale == 0) return constant;
  const float zero = whole ? round_even(-low / scale) : rounded_meta(-low / scale, format.meta);
  return {whole ? Kind::whole_zero : Kind::zero_point, scale, zero, scale, rounded_meta(-scale * zero, format.meta)};
}

__device__ inline GroupCoder code_fit(const DeviceGroup& group, float largest, const QuantFormat& format) {
  GroupCoder coder{GroupCoder::Kind::ggml_fit, 1 / (largest / format.codebook[0]), 0, 1, 0};
  float products = 0;
  float squares = 0;
  for (int64_t i = 0; i < group.count; ++i) {
    const float x = group.at(i);
    const float level = format.codebook[coder.code(format, x)];
    const float weight = x * x;
    products += weight * level * x;
    squares += weight * level * level;
  }
  coder.stored_scale = rounded_meta(products / squares, format.meta);
  return coder;
}

__device__ inline GroupCoder code_largest(const DeviceGroup& group, const QuantFormat& format) {
  using Kind = GroupCoder::Kind;
  float largest = 0;  // signed, of largest magnitude, the first of several
  for (int64_t i = 0; i < group.count; ++i) {
    if (fabsf(group.at(i)) > fabsf(largest)) largest = group.at(i);
  }
  const GroupCoder zeros{Kind::constant, 1, 0, 0, 0};
  if (largest == 0) return zeros;
  if (format.rule == QuantRule::absmax) {
    const float scale = rounded_meta(fabsf(largest) * format.clip / largest_level(format), format.meta);
    return scale == 0 ? zeros : GroupCoder{Kind::given, scale, 0, scale, 0};
  }
  if (format.rule == QuantRule::ggml_fit) return code_fit(group, largest, format);
  const bool q8 = format.rule == QuantRule::ggml_q8;
  const float scale = q8 ? fabsf(largest) / 127 : largest / -half_codes(format);
  return {q8 ? Kind::ggml_q8 : Kind::ggml_signed, 1 / scale, 0, rounded_meta(scale, format.meta), 0};
}

__device__ inline GroupCoder code_block(const DeviceGroup& group, const QuantFormat& format) {
  float largest = 0;
  for (int64_t i = 0; i < group.count; ++i) largest = fmaxf(largest, fabsf(group.at(i)));
  const float top = format.codebook[7];
  const float scale = format.rule == QuantRule::mx ? power_of_two_scale(largest, top)
                                                   : e4m3_at(to_fp8(largest / top, 3, -6, kLargestE4M3));
  return {GroupCoder::Kind::block, scale, 0, scale, 0};
}

__device__ inline GroupCoder code_norm(const DeviceGroup& group, const QuantFormat& format) {
  using Kind = GroupCoder::Kind;
  double squares = 0;
  for (int64_t i = 0; i < group.count; ++i) squares += static_cast<double>(group.at(i)) * group.at(i);
  if (squares == 0) return {Kind::constant, 1, 0, 0, 0};
  const auto mean = static_cast<float>(sqrt(squares / static_cast<double>(group.count)));
  GroupCoder coder{Kind::given, mean, 0, rounded_meta(mean, format.meta), 0};
  if (format.rule == QuantRule::plain_norm) return coder;
  double decoded = 0;
  for (int64_t i = 0; i < group.count; ++i) {
    const double level = level_at(format, coder.code(format, group.at(i)));
    decoded += level * level;
  }
  coder.stored_scale = rounded_meta(static_cast<float>(sqrt(squares / decoded)), format.meta);
  return coder;
}

/// The coder of a group by the format's rule, which is not `given`.
__device__ inline GroupCoder code_group(const DeviceGroup& group, const QuantFormat& format) {
  switch (format.rule) {
    case QuantRule::minimum:
    case QuantRule::midpoint:
    case QuantRule::zero_point:
    case QuantRule::whole_zero:
    case QuantRule::ggml_range: return code_range(group, format);
    case QuantRule::absmax:
    case QuantRule::ggml_q8:
    case QuantRule::ggml_signed:
    case QuantRule::ggml_fit: return code_largest(group, format);
    case QuantRule::norm:
    case QuantRule::plain_norm: return code_norm(group, format);
    case QuantRule::mx:
    case QuantRule::nv: return code_block(group, format);
    case QuantRule::none:
    case QuantRule::given: break;
  }
  return {};
}

}  // namespace kvarena::kernels
