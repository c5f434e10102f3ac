#pragma once
// Per-path internal: from codes in dwords to the numbers they stand for.

#include <bit>

#include "kernels/common/simd.h"
#include "kernels/quantize/quantize.h"

namespace kvarena::kernels {
namespace {

/// Width and kind of codes as constants. Up to 5 bits uniform levels are a codebook like any other.
template <int BITS, Levels LEVELS>
struct Code {
  static constexpr int bits = BITS;
  static constexpr Levels levels = LEVELS;
};

/// Calls f with the format's Code.
template <class F>
KVARENA_INLINE void with_code(const QuantFormat& format, const F& f) {
  switch (format.bits) {
    case 1: return f(Code<1, Levels::codebook>{});
    case 2: return f(Code<2, Levels::codebook>{});
    case 3: return f(Code<3, Levels::codebook>{});
    case 4: return f(Code<4, Levels::codebook>{});
    case 5: return f(Code<5, Levels::codebook>{});
    default: break;
  }
  switch (format.levels) {
    case Levels::e4m3: return f(Code<8, Levels::e4m3>{});
    case Levels::e5m2: return f(Code<8, Levels::e5m2>{});
    case Levels::codebook: return f(Code<8, Levels::codebook>{});
    default: return f(Code<8, Levels::uniform>{});
  }
}

/// The levels of up to 5 bits, repeated to fill 16 lanes; the first of uniform 8-bit ones; an 8-bit codebook.
struct LevelTable {
  F32x16 low, high;
  const float* codebook = nullptr;
};

KVARENA_INLINE LevelTable level_table(const QuantFormat& format) {
  const auto first = static_cast<float>(format.first_level);
  if (format.bits == 8) return {set16(first), zero16(), format.codebook};
  alignas(64) float levels[32];
  const int mask = (1 << format.bits) - 1;
  for (int i = 0; i < 32; ++i) {
    levels[i] = format.levels == Levels::codebook ? format.codebook[i & mask] : static_cast<float>(i & mask) + first;
  }
  return {load16(levels), load16(levels + kLanes)};
}

/// The number that the lowest bits of each lane stand for; the bits above are ignored.
template <class C>
KVARENA_INLINE F32x16 level_of_lanes(U32x16 a, const LevelTable& table) {
  if constexpr (C::bits <= 4) {
    return look_up<C::bits>(a, table.low);
  } else if constexpr (C::bits == 5) {
    return look_up(a, table.low, table.high);
  } else if constexpr (C::levels == Levels::uniform) {
    return add(low_byte(a), table.low);
  } else if constexpr (C::levels == Levels::codebook) {  // too many for registers
    alignas(64) float codes[kLanes], levels[kLanes];
    store16(codes, bits_of(masked(a, 0xff)));
    for (int i = 0; i < kLanes; ++i) levels[i] = table.codebook[std::bit_cast<uint32_t>(codes[i])];
    return load16(levels);
  } else if constexpr (C::levels == Levels::e4m3) {  // the exponents of an f16, less 8
    return mul(f16_lanes(either(shift_left(masked(a, 0x80), 8), shift_left(masked(a, 0x7f), 7))), set16(256));
  } else {
    return f16_lanes(shift_left(masked(a, 0xff), 8));
  }
}

// Tags for scales of 8 bits, beside those of simd.h for 16.
struct E8M0 {};
struct E4M3 {};
template <class M>
inline constexpr bool kByteScales = false;
template <>
inline constexpr bool kByteScales<E8M0> = true;
template <>
inline constexpr bool kByteScales<E4M3> = true;

/// Calls f with the tag of how the format's scales are stored.
template <class F>
KVARENA_INLINE void with_meta(const QuantFormat& format, const F& f) {
  if (format.rule == QuantRule::mx) return f(E8M0{});
  if (format.rule == QuantRule::nv) return f(E4M3{});
  if (format.meta == DType::bf16) return f(BF16{});
  f(F16{});
}

KVARENA_INLINE F32x16 byte_scales(E8M0, U32x16 bytes) { return bits_of(shift_left(bytes, 23)); }
KVARENA_INLINE F32x16 byte_scales(E4M3, U32x16 bytes) {
  return level_of_lanes<Code<8, Levels::e4m3>>(bytes, {zero16(), zero16()});
}

/// Sixteen scales or zeros, or what their absence means.
template <class M>
KVARENA_INLINE F32x16 meta_lanes(const uint16_t* meta, int64_t at, float absent) {
  if (meta == nullptr) return set16(absent);
  if constexpr (kByteScales<M>) {
    return byte_scales(M{}, load_u8(reinterpret_cast<const uint8_t*>(meta) + at));
  } else {
    return load16(M{}, meta + at);
  }
}

/// Codes 0 .. n-1 of every lane as numbers [n][16]; writes whole_codes(n) of them.
template <class C>
void unpack_lanes(const uint32_t* planes, int64_t n, const LevelTable& table, float* out) {
  // 32 codes fill C::bits dwords; those of 3 and 5 bits may cross from one into the next.
  const int64_t total = (n * C::bits + 31) / 32;
  for (int64_t j = 0, plane = 0; j < n; j += 32, plane += C::bits) {
    U32x16 word[C::bits];
#pragma GCC unroll 8
    for (int w = 0; w < C::bits; ++w) word[w] = load_u32(planes + min_of(plane + w, total - 1) * kLanes);
    float* to = out + j * kLanes;
#pragma GCC unroll 32
    for (int i = 0; i < 32; ++i) {
      const int at = i * C::bits / 32, shift = i * C::bits % 32;
      U32x16 code = shift_right(word[at], shift);
      if (shift + C::bits > 32) code = either(code, shift_left(word[at + 1], 32 - shift));
      store16(to + i * kLanes, level_of_lanes<C>(code, table));
    }
  }
}

/// Codes first .. first+n-1 of every lane.
template <class C>
void unpack_some(const uint32_t* planes, int64_t first, int64_t n, const LevelTable& table, float* out) {
  for (int64_t j = 0; j < n; ++j) {
    const int64_t bit = (first + j) * C::bits;
    const int shift = static_cast<int>(bit % 32);
    const uint32_t* word = planes + bit / 32 * kLanes;
    U32x16 code = shift_right(load_u32(word), shift);
    if (shift + C::bits > 32) code = either(code, shift_left(load_u32(word + kLanes), 32 - shift));
    store16(out + j * kLanes, level_of_lanes<C>(code, table));
  }
}

}  // namespace
}  // namespace kvarena::kernels
