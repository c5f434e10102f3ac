// The rules of quantize.h for one group.
#include <algorithm>
#include <cmath>

#include "kernels/quantize/fp4.h"
#include "kernels/quantize/fp8.h"
#include "kernels/quantize/quantize.h"

namespace kvarena::kernels {
namespace {

/// Ties to even for |x| < 2^22, without a library call; what is larger stays as it is.
float round_even(float x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
  return std::fabs(x) < 4194304.0f ? (x + kMagic) - kMagic : x;
}

float rounded(float x, DType meta) { return half_to_f32(f32_to_half(x, meta), meta); }

/// Clamps x to 0 .. top; NaN becomes 0.
float saturated(float x, float top) { return x > 0 ? (x < top ? x : top) : 0.0f; }

struct Group {
  const float* x;
  int64_t count, stride;
  [[nodiscard]] float at(int64_t i) const { return x[i * stride]; }
};

float top_code(const QuantFormat& format) { return static_cast<float>((1 << format.bits) - 1); }

float largest_level(const QuantFormat& format) {
  switch (format.levels) {
    case Levels::uniform: return top_code(format) + static_cast<float>(format.first_level);
    case Levels::codebook: return format.codebook[(1 << format.bits) - 1];
    case Levels::e4m3: return kLargestE4M3;
    case Levels::e5m2: return kLargestE5M2;
  }
  return 1;
}

/// The code of the level nearest to x; between two levels of a codebook the lower one.
uint8_t nearest(const QuantFormat& format, float x) {
  switch (format.levels) {
    case Levels::uniform:
      return static_cast<uint8_t>(round_even(saturated(x - static_cast<float>(format.first_level), top_code(format))));
    case Levels::codebook: {
      const int levels = 1 << format.bits;
      int code = 0;
      while (code + 1 < levels && x > (format.codebook[code] + format.codebook[code + 1]) / 2) ++code;
      return static_cast<uint8_t>(code);
    }
    case Levels::e4m3: return f32_to_e4m3(x);
    case Levels::e5m2: return f32_to_e5m2(x);
  }
  return 0;
}

struct Range {
  float low, high;
};
Range range_of(const Group& group, float clip) {
  Range range{group.at(0), group.at(0)};
  for (int64_t i = 1; i < group.count; ++i) {
    range.low = std::min(range.low, group.at(i));
    range.high = std::max(range.high, group.at(i));
  }
  return {range.low * clip, range.high * clip};
}

GroupMeta constant_group(const Group& group, const QuantFormat& format, uint8_t* codes) {
  std::fill_n(codes, group.count, nearest(format, 0));
  return {.scale = 1, .zero = rounded(group.at(0), format.meta)};
}

/// Codes a group by the rules `minimum` and `midpoint`, whose offset is stored as it is.
GroupMeta by_offset(const Group& group, const QuantFormat& format, uint8_t* codes) {
  const auto [low, high] = range_of(group, format.clip);
  const bool midpoint = format.rule == QuantRule::midpoint;
  GroupMeta meta;
  const float parts = top_code(format) + 1;
  meta.zero = rounded(midpoint ? ((2 * parts - 1) * low + high) / (2 * parts) : low, format.meta);
  meta.scale = rounded((high - low) / (midpoint ? parts : top_code(format)), format.meta);
  if (meta.scale == 0) return constant_group(group, format, codes);
  quantize_given(group.x, group.count, group.stride, format, meta, codes);
  return meta;
}

/// ggml_range: codes from the range before it is rounded.
GroupMeta by_range(const Group& group, const QuantFormat& format, uint8_t* codes) {
  const auto [low, high] = range_of(group, 1);
  const float scale = (high - low) / top_code(format);
  if (scale == 0) return constant_group(group, format, codes);
  const float inverse = 1 / scale;
  for (int64_t i = 0; i < group.count; ++i) {
    const float code = std::trunc((group.at(i) - low) * inverse + 0.5f);
    codes[i] = static_cast<uint8_t>(saturated(code, top_code(format)));
  }
  return {.scale = rounded(scale, format.meta), .zero = rounded(low, format.meta)};
}

/// zero_point and whole_zero: codes are rounded about the zero point, which the offset then stands for.
GroupMeta by_zero_point(const Group& group, const QuantFormat& format, uint8_t* codes) {
  const auto [low, high] = range_of(group, format.clip);
  const bool whole = format.rule == QuantRule::whole_zero;
  const float scale = rounded((high - low) / top_code(format), format.meta);
  if (scale == 0) return constant_group(group, format, codes);
  const float zero = whole ? round_even(-low / scale) : rounded(-low / scale, format.meta);
  for (int64_t i = 0; i < group.count; ++i) {
    const float t = whole ? round_even(group.at(i) / scale) + zero : group.at(i) / scale + zero;
    codes[i] = static_cast<uint8_t>(round_even(saturated(t, top_code(format))));
  }
  return {.scale = scale, .zero = rounded(-scale * zero, format.meta)};
}

/// All numbers zero: no scale is right, every one will do.
GroupMeta zero_group(const Group& group, const QuantFormat& format, uint8_t* codes) {
  std::fill_n(codes, group.count, nearest(format, 0));
  return {.scale = 0, .zero = 0};
}

/// The code of the level nearest to x; between two levels the upper one.
uint8_t nearest_above(const QuantFormat& format, float x) {
  int code = 0;
  while (code + 1 < 1 << format.bits && !(x - format.codebook[code] < format.codebook[code + 1] - x)) ++code;
  return static_cast<uint8_t>(code);
}

GroupMeta by_fit(const Group& group, float largest, const QuantFormat& format, uint8_t* codes) {
  const float inverse = 1 / (largest / format.codebook[0]);
  float products = 0;
  float squares = 0;
  for (int64_t i = 0; i < group.count; ++i) {
    const float x = group.at(i);
    codes[i] = nearest_above(format, inverse * x);
    const float level = format.codebook[codes[i]];
    const float weight = x * x;
    products += weight * level * x;
    squares += weight * level * level;
  }
  return {.scale = rounded(products / squares, format.meta)};
}

GroupMeta by_largest(const Group& group, const QuantFormat& format, uint8_t* codes) {
  float largest = 0;  // signed, of largest magnitude, the first of several
  for (int64_t i = 0; i < group.count; ++i) {
    if (std::fabs(group.at(i)) > std::fabs(largest)) largest = group.at(i);
  }
  if (largest == 0) return zero_group(group, format, codes);
  if (format.rule == QuantRule::absmax) {
    const GroupMeta meta{.scale = rounded(std::fabs(largest) * format.clip / largest_level(format), format.meta)};
    if (meta.scale == 0) return zero_group(group, format, codes);
    quantize_given(group.x, group.count, group.stride, format, meta, codes);
    return meta;
  }
  if (format.rule == QuantRule::ggml_fit) return by_fit(group, largest, format, codes);
  const bool q8 = format.rule == QuantRule::ggml_q8;
  const auto half = static_cast<float>(1 << (format.bits - 1));
  const float scale = q8 ? std::fabs(largest) / 127 : largest / -half;
  const float inverse = 1 / scale;
  for (int64_t i = 0; i < group.count; ++i) {
    const float t = group.at(i) * inverse;
    const float code = q8 ? std::round(t) - static_cast<float>(format.first_level) : std::trunc(t + (half + 0.5f));
    codes[i] = static_cast<uint8_t>(saturated(code, top_code(format)));
  }
  return {.scale = rounded(scale, format.meta)};
}

/// mx and nv, whose scales have 8 bits.
GroupMeta by_block(const Group& group, const QuantFormat& format, uint8_t* codes) {
  float largest = 0;
  for (int64_t i = 0; i < group.count; ++i) largest = std::max(largest, std::fabs(group.at(i)));
  const float top = format.codebook[7];
  const float scale =
      format.rule == QuantRule::mx ? power_of_two_scale(largest, top) : e4m3_to_f32(f32_to_e4m3(largest / top));
  for (int64_t i = 0; i < group.count; ++i) {
    codes[i] = scale == 0 ? uint8_t{0} : nearest_e2m1(format.codebook, group.at(i) / scale);
  }
  return {.scale = scale};
}

/// Levels are those of a variable of unit variance, so numbers are divided by their root mean square.
GroupMeta by_norm(const Group& group, const QuantFormat& format, uint8_t* codes) {
  double squares = 0;
  for (int64_t i = 0; i < group.count; ++i) squares += static_cast<double>(group.at(i)) * group.at(i);
  if (squares == 0) return zero_group(group, format, codes);
  const auto mean = static_cast<float>(std::sqrt(squares / static_cast<double>(group.count)));
  quantize_given(group.x, group.count, group.stride, format, {.scale = mean}, codes);
  if (format.rule == QuantRule::plain_norm) return {.scale = rounded(mean, format.meta)};
  double decoded = 0;
  for (int64_t i = 0; i < group.count; ++i) {
    const double level = level_of(format, codes[i]);
    decoded += level * level;
  }
  return {.scale = rounded(static_cast<float>(std::sqrt(squares / decoded)), format.meta)};
}

}  // namespace

float level_of(const QuantFormat& format, uint32_t code) {
  switch (format.levels) {
    case Levels::uniform: return static_cast<float>(static_cast<int>(code) + format.first_level);
    case Levels::codebook: return format.codebook[code];
    case Levels::e4m3: return e4m3_to_f32(static_cast<uint8_t>(code));
    case Levels::e5m2: return e5m2_to_f32(static_cast<uint8_t>(code));
  }
  return 0;
}

void quantize_given(const float* x, int64_t count, int64_t stride, const QuantFormat& format, const GroupMeta& meta,
                    uint8_t* codes) {
  for (int64_t i = 0; i < count; ++i) codes[i] = nearest(format, (x[i * stride] - meta.zero) / meta.scale);
}

GroupMeta quantize_group(const float* x, int64_t count, int64_t stride, const QuantFormat& format, uint8_t* codes) {
  if (count == 0) return {};
  const Group group{x, count, stride};
  switch (format.rule) {
    case QuantRule::minimum:
    case QuantRule::midpoint: return by_offset(group, format, codes);
    case QuantRule::zero_point:
    case QuantRule::whole_zero: return by_zero_point(group, format, codes);
    case QuantRule::ggml_range: return by_range(group, format, codes);
    case QuantRule::absmax:
    case QuantRule::ggml_q8:
    case QuantRule::ggml_signed:
    case QuantRule::ggml_fit: return by_largest(group, format, codes);
    case QuantRule::norm:
    case QuantRule::plain_norm: return by_norm(group, format, codes);
    case QuantRule::mx:
    case QuantRule::nv: return by_block(group, format, codes);
    case QuantRule::none:
    case QuantRule::given: break;
  }
  quantize_given(x, count, stride, format, {}, codes);
  return {};
}

}  // namespace kvarena::kernels
