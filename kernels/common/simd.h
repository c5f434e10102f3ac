#pragma once
// Sixteen float lanes, as one AVX-512 register or two AVX2 registers. Only for the files that the build compiles once
// per instruction set (`*_simd.cpp`).
//
// Every operation rounds alike on both, exp included, so that both paths give equal bits. Everything has internal
// linkage: an inline function shared between paths could be linked into code that runs on a machine without them. For
// the same reason those files use no templates of the standard library.

#include <immintrin.h>

#include <cstdint>

#if defined(__AVX512BF16__) && defined(KVARENA_SIMD_AVX512)
#define KVARENA_SIMD_PATH avx512bf16
#elif defined(__AVX512VNNI__) && defined(KVARENA_SIMD_AVX512)
#define KVARENA_SIMD_PATH avx512vnni
#elif defined(__AVX512F__) && defined(KVARENA_SIMD_AVX512)
#define KVARENA_SIMD_PATH avx512
#elif defined(__AVX2__)
#define KVARENA_SIMD_PATH avx2
#else
#error "simd.h is for sources compiled through the kernels' per-path targets"
#endif

#define KVARENA_INLINE [[gnu::always_inline, maybe_unused]] inline

namespace kvarena::kernels {
namespace {

constexpr int kLanes = 16;

// Tags for the stored formats.
struct F32 {
  using Stored = float;
};
struct F16 {
  using Stored = uint16_t;
};
struct BF16 {
  using Stored = uint16_t;
};

/// Prefetches the cache line at p; any address is allowed.
KVARENA_INLINE void fetch(const void* p) { __builtin_prefetch(p, 0, 3); }

KVARENA_INLINE int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
KVARENA_INLINE int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }

#if defined(KVARENA_SIMD_AVX512)

struct F32x16 {
  __m512 v;
};
struct Mask16 {
  __mmask16 m;
};

KVARENA_INLINE F32x16 zero16() { return {_mm512_setzero_ps()}; }
KVARENA_INLINE F32x16 set16(float x) { return {_mm512_set1_ps(x)}; }
KVARENA_INLINE F32x16 load16(const float* p) { return {_mm512_loadu_ps(p)}; }
KVARENA_INLINE void store16(float* p, F32x16 a) { _mm512_storeu_ps(p, a.v); }
KVARENA_INLINE F32x16 add(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
KVARENA_INLINE F32x16 sub(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
KVARENA_INLINE F32x16 mul(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
KVARENA_INLINE F32x16 div(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
/// a * b + c, rounded once.
KVARENA_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
/// The larger of each lane; b where either is NaN.
KVARENA_INLINE F32x16 max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
KVARENA_INLINE F32x16 min(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
KVARENA_INLINE F32x16 abs16(F32x16 a) { return {_mm512_abs_ps(a.v)}; }
/// Lanes 0 .. n-1.
KVARENA_INLINE Mask16 first_lanes(int64_t n) {
  return {static_cast<__mmask16>(n <= 0 ? 0u : n >= 16 ? 0xffffu : (1u << n) - 1u)};
}
KVARENA_INLINE Mask16 and_not(Mask16 a, Mask16 b) { return {static_cast<__mmask16>(a.m & ~b.m)}; }
KVARENA_INLINE Mask16 less(F32x16 a, F32x16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
/// `yes` in lanes where the mask is set, else `no`.
KVARENA_INLINE F32x16 select(Mask16 m, F32x16 yes, F32x16 no) { return {_mm512_mask_blend_ps(m.m, no.v, yes.v)}; }
/// Touches only memory of set lanes; other lanes are zero.
KVARENA_INLINE F32x16 load16(const float* p, Mask16 m) { return {_mm512_maskz_loadu_ps(m.m, p)}; }
KVARENA_INLINE void store16(float* p, F32x16 a, Mask16 m) { _mm512_mask_storeu_ps(p, m.m, a.v); }

KVARENA_INLINE F32x16 load16(F32, const float* p) { return load16(p); }
KVARENA_INLINE F32x16 load16(BF16, const uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
KVARENA_INLINE F32x16 load16(F16, const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
KVARENA_INLINE void store16(F32, float* p, F32x16 a) { store16(p, a); }
KVARENA_INLINE void store16(BF16, uint16_t* p, F32x16 a) {
  const __m512i u = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  const __m512i kept = _mm512_mask_blend_epi32(nan, rounded, _mm512_or_si512(u, _mm512_set1_epi32(0x400000)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16)));
}
KVARENA_INLINE void store16(F16, uint16_t* p, F32x16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
/// Nearest integer, ties to even, as float.
KVARENA_INLINE F32x16 round16(F32x16 a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT)}; }
/// x * 2^n for integral n in -126 .. 127 by adding to the exponent; a zero or overflowing result is not handled.
KVARENA_INLINE F32x16 add_exponent(F32x16 x, F32x16 n) {
  const __m512i shift = _mm512_slli_epi32(_mm512_cvtps_epi32(n.v), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x.v), shift))};
}
/// Halves of eight lanes.
KVARENA_INLINE __m256 low8(F32x16 a) { return _mm512_castps512_ps256(a.v); }
KVARENA_INLINE __m256 high8(F32x16 a) { return _mm512_extractf32x8_ps(a.v, 1); }

/// Sixteen unsigned lanes.
struct U32x16 {
  __m512i v;
};
KVARENA_INLINE U32x16 load_u32(const uint32_t* p) { return {_mm512_loadu_si512(p)}; }
/// Sixteen bytes, a lane each.
KVARENA_INLINE U32x16 load_u8(const uint8_t* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
/// The vector extension's operators become immediate shifts where n is a constant after unrolling.
KVARENA_INLINE U32x16 shift_right(U32x16 a, int n) { return {(__m512i)((__v16su)a.v >> n)}; }
KVARENA_INLINE U32x16 shift_left(U32x16 a, int n) { return {(__m512i)((__v16su)a.v << n)}; }
KVARENA_INLINE U32x16 either(U32x16 a, U32x16 b) { return {_mm512_or_si512(a.v, b.v)}; }
KVARENA_INLINE U32x16 differing(U32x16 a, U32x16 b) { return {_mm512_xor_si512(a.v, b.v)}; }
KVARENA_INLINE U32x16 set_u32(uint32_t x) { return {_mm512_set1_epi32(static_cast<int>(x))}; }
/// Lower halves of the products.
KVARENA_INLINE U32x16 mul(U32x16 a, U32x16 b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
KVARENA_INLINE U32x16 masked(U32x16 a, uint32_t mask) {
  return {_mm512_and_si512(a.v, _mm512_set1_epi32(static_cast<int>(mask)))};
}
/// Bits of b where the mask has them set, else those of a.
KVARENA_INLINE U32x16 merged(U32x16 a, U32x16 b, uint32_t mask) {
  return {_mm512_ternarylogic_epi32(a.v, b.v, _mm512_set1_epi32(static_cast<int>(mask)), 0xd8)};
}
/// The lowest byte of each lane as a number.
KVARENA_INLINE F32x16 low_byte(U32x16 a) { return {_mm512_cvtepi32_ps(masked(a, 0xff).v)}; }
/// The lowest 16 bits of each lane, read as f16; the upper ones are 0.
KVARENA_INLINE F32x16 f16_lanes(U32x16 a) { return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(a.v))}; }
/// The integer nearest to each lane, ties to even; of what fits no integer, the most negative one.
KVARENA_INLINE U32x16 integers(F32x16 a) { return {_mm512_cvtps_epi32(a.v)}; }
/// Lanes as signed integers.
KVARENA_INLINE F32x16 numbers(U32x16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
KVARENA_INLINE U32x16 add(U32x16 a, U32x16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
/// Reinterprets lanes, bits unchanged.
KVARENA_INLINE F32x16 bits_of(U32x16 a) { return {_mm512_castsi512_ps(a.v)}; }
KVARENA_INLINE U32x16 bits_of(F32x16 a) { return {_mm512_castps_si512(a.v)}; }
/// The lower half of each lane i, and in its upper half the lower half of lane i + N modulo 16.
template <int N>
KVARENA_INLINE U32x16 pair_lanes(U32x16 a) {
  constexpr auto kWord = [](int i) { return i % 2 == 0 ? i : 2 * ((i / 2 + N) % 16); };
  const __m512i from =
      _mm512_set_epi16(kWord(31), kWord(30), kWord(29), kWord(28), kWord(27), kWord(26), kWord(25), kWord(24),
                       kWord(23), kWord(22), kWord(21), kWord(20), kWord(19), kWord(18), kWord(17), kWord(16),
                       kWord(15), kWord(14), kWord(13), kWord(12), kWord(11), kWord(10), kWord(9), kWord(8), kWord(7),
                       kWord(6), kWord(5), kWord(4), kWord(3), kWord(2), kWord(1), kWord(0));
  return {_mm512_permutexvar_epi16(from, a.v)};
}
/// The lower halves of two vectors' lanes, the first's below.
KVARENA_INLINE U32x16 pair(U32x16 low, U32x16 high) {
  return {_mm512_mask_blend_epi16(0xaaaaaaaa, low.v, _mm512_slli_epi32(high.v, 16))};
}
/// sum + a.low * b.low + a.high * b.high, of the signed 16-bit halves of each lane.
KVARENA_INLINE U32x16 add_pairs(U32x16 sum, U32x16 a, U32x16 b) {
#if defined(__AVX512VNNI__)
  return {_mm512_dpwssd_epi32(sum.v, a.v, b.v)};
#else
  return {_mm512_add_epi32(sum.v, _mm512_madd_epi16(a.v, b.v))};
#endif
}
/// table[lowest BITS bits of each lane]; the table repeats itself every 2^BITS lanes. The bits above are ignored.
template <int BITS>
KVARENA_INLINE F32x16 look_up(U32x16 a, F32x16 table) {
  static_assert(BITS <= 4);
  return {_mm512_permutexvar_ps(a.v, table.v)};
}
/// table[lowest 5 bits of each lane] of a table of 32 numbers, `low` and `high`.
KVARENA_INLINE F32x16 look_up(U32x16 a, F32x16 low, F32x16 high) {
  return {_mm512_permutex2var_ps(low.v, a.v, high.v)};
}
/// Swaps lanes: lane i takes lane i ^ N; N is 1, 2, 4 or 8.
template <int N>
KVARENA_INLINE F32x16 swap_lanes(F32x16 a) {
  if constexpr (N < 4) return {_mm512_permute_ps(a.v, N == 1 ? 0xb1 : 0x4e)};
  return {_mm512_shuffle_f32x4(a.v, a.v, N == 4 ? 0xb1 : 0x4e)};
}

#else  // AVX2

struct F32x16 {
  __m256 l, h;
};
struct Mask16 {
  __m256 l, h;
};

KVARENA_INLINE F32x16 zero16() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
KVARENA_INLINE F32x16 set16(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
KVARENA_INLINE F32x16 load16(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
KVARENA_INLINE void store16(float* p, F32x16 a) {
  _mm256_storeu_ps(p, a.l);
  _mm256_storeu_ps(p + 8, a.h);
}
KVARENA_INLINE F32x16 add(F32x16 a, F32x16 b) { return {_mm256_add_ps(a.l, b.l), _mm256_add_ps(a.h, b.h)}; }
KVARENA_INLINE F32x16 sub(F32x16 a, F32x16 b) { return {_mm256_sub_ps(a.l, b.l), _mm256_sub_ps(a.h, b.h)}; }
KVARENA_INLINE F32x16 mul(F32x16 a, F32x16 b) { return {_mm256_mul_ps(a.l, b.l), _mm256_mul_ps(a.h, b.h)}; }
KVARENA_INLINE F32x16 div(F32x16 a, F32x16 b) { return {_mm256_div_ps(a.l, b.l), _mm256_div_ps(a.h, b.h)}; }
KVARENA_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.l, b.l, c.l), _mm256_fmadd_ps(a.h, b.h, c.h)};
}
KVARENA_INLINE F32x16 max(F32x16 a, F32x16 b) { return {_mm256_max_ps(a.l, b.l), _mm256_max_ps(a.h, b.h)}; }
KVARENA_INLINE F32x16 min(F32x16 a, F32x16 b) { return {_mm256_min_ps(a.l, b.l), _mm256_min_ps(a.h, b.h)}; }
KVARENA_INLINE F32x16 abs16(F32x16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.l), _mm256_andnot_ps(sign, a.h)};
}
KVARENA_INLINE Mask16 first_lanes(int64_t n) {
  const __m256i count = _mm256_set1_epi32(static_cast<int>(n < 0 ? 0 : n > 16 ? 16 : n));
  const __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i high = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(count, low)), _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, high))};
}
KVARENA_INLINE Mask16 and_not(Mask16 a, Mask16 b) { return {_mm256_andnot_ps(b.l, a.l), _mm256_andnot_ps(b.h, a.h)}; }
KVARENA_INLINE Mask16 less(F32x16 a, F32x16 b) {
  return {_mm256_cmp_ps(a.l, b.l, _CMP_LT_OQ), _mm256_cmp_ps(a.h, b.h, _CMP_LT_OQ)};
}
KVARENA_INLINE F32x16 select(Mask16 m, F32x16 yes, F32x16 no) {
  return {_mm256_blendv_ps(no.l, yes.l, m.l), _mm256_blendv_ps(no.h, yes.h, m.h)};
}
KVARENA_INLINE F32x16 load16(const float* p, Mask16 m) {
  return {_mm256_maskload_ps(p, _mm256_castps_si256(m.l)), _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.h))};
}
KVARENA_INLINE void store16(float* p, F32x16 a, Mask16 m) {
  _mm256_maskstore_ps(p, _mm256_castps_si256(m.l), a.l);
  _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.h), a.h);
}

KVARENA_INLINE F32x16 load16(F32, const float* p) { return load16(p); }
KVARENA_INLINE F32x16 load16(BF16, const uint16_t* p) {
  const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(low), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(high), 16))};
}
KVARENA_INLINE F32x16 load16(F16, const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
KVARENA_INLINE void store16(F32, float* p, F32x16 a) { store16(p, a); }
KVARENA_INLINE __m256i bf16_bits(__m256 a) {
  const __m256i u = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  const __m256 nan = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
  const __m256 kept = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), nan);
  return _mm256_srli_epi32(_mm256_castps_si256(kept), 16);
}
KVARENA_INLINE void store16(BF16, uint16_t* p, F32x16 a) {
  const __m256i packed = _mm256_packus_epi32(bf16_bits(a.l), bf16_bits(a.h));  // 128-bit lanes interleave
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
KVARENA_INLINE void store16(F16, uint16_t* p, F32x16 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.l, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(a.h, _MM_FROUND_TO_NEAREST_INT));
}
KVARENA_INLINE F32x16 round16(F32x16 a) {
  return {_mm256_round_ps(a.l, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(a.h, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
KVARENA_INLINE __m256 add_exponent8(__m256 x, __m256 n) {
  const __m256i shift = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), shift));
}
KVARENA_INLINE F32x16 add_exponent(F32x16 x, F32x16 n) { return {add_exponent8(x.l, n.l), add_exponent8(x.h, n.h)}; }
KVARENA_INLINE __m256 low8(F32x16 a) { return a.l; }
KVARENA_INLINE __m256 high8(F32x16 a) { return a.h; }

struct U32x16 {
  __m256i l, h;
};
KVARENA_INLINE U32x16 load_u32(const uint32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
KVARENA_INLINE U32x16 load_u8(const uint8_t* p) {
  return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
}
KVARENA_INLINE U32x16 shift_right(U32x16 a, int n) {
  return {(__m256i)((__v8su)a.l >> n), (__m256i)((__v8su)a.h >> n)};
}
KVARENA_INLINE U32x16 shift_left(U32x16 a, int n) { return {(__m256i)((__v8su)a.l << n), (__m256i)((__v8su)a.h << n)}; }
KVARENA_INLINE U32x16 either(U32x16 a, U32x16 b) { return {_mm256_or_si256(a.l, b.l), _mm256_or_si256(a.h, b.h)}; }
KVARENA_INLINE U32x16 differing(U32x16 a, U32x16 b) { return {_mm256_xor_si256(a.l, b.l), _mm256_xor_si256(a.h, b.h)}; }
KVARENA_INLINE U32x16 set_u32(uint32_t x) {
  const __m256i eight = _mm256_set1_epi32(static_cast<int>(x));
  return {eight, eight};
}
KVARENA_INLINE U32x16 mul(U32x16 a, U32x16 b) { return {_mm256_mullo_epi32(a.l, b.l), _mm256_mullo_epi32(a.h, b.h)}; }
KVARENA_INLINE U32x16 masked(U32x16 a, uint32_t mask) {
  const __m256i m = _mm256_set1_epi32(static_cast<int>(mask));
  return {_mm256_and_si256(a.l, m), _mm256_and_si256(a.h, m)};
}
KVARENA_INLINE U32x16 merged(U32x16 a, U32x16 b, uint32_t mask) { return either(masked(a, ~mask), masked(b, mask)); }
KVARENA_INLINE F32x16 low_byte(U32x16 a) {
  const U32x16 byte = masked(a, 0xff);
  return {_mm256_cvtepi32_ps(byte.l), _mm256_cvtepi32_ps(byte.h)};
}
KVARENA_INLINE U32x16 integers(F32x16 a) { return {_mm256_cvtps_epi32(a.l), _mm256_cvtps_epi32(a.h)}; }
KVARENA_INLINE F32x16 numbers(U32x16 a) { return {_mm256_cvtepi32_ps(a.l), _mm256_cvtepi32_ps(a.h)}; }
KVARENA_INLINE U32x16 add(U32x16 a, U32x16 b) { return {_mm256_add_epi32(a.l, b.l), _mm256_add_epi32(a.h, b.h)}; }
KVARENA_INLINE F32x16 bits_of(U32x16 a) { return {_mm256_castsi256_ps(a.l), _mm256_castsi256_ps(a.h)}; }
KVARENA_INLINE U32x16 bits_of(F32x16 a) { return {_mm256_castps_si256(a.l), _mm256_castps_si256(a.h)}; }
KVARENA_INLINE U32x16 pair(U32x16 low, U32x16 high) {
  return {_mm256_blend_epi16(low.l, _mm256_slli_epi32(high.l, 16), 0xaa),
          _mm256_blend_epi16(low.h, _mm256_slli_epi32(high.h, 16), 0xaa)};
}
template <int N>
KVARENA_INLINE U32x16 pair_lanes(U32x16 a) {
  if constexpr (N == 8) {
    return pair(a, {a.h, a.l});
  } else {
    const __m256i from = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(N));
    const __m256i l = _mm256_permutevar8x32_epi32(a.l, from), h = _mm256_permutevar8x32_epi32(a.h, from);
    constexpr int kOther = 0xff << (8 - N) & 0xff;  // lanes that come from the other half
    return pair(a, {_mm256_blend_epi32(l, h, kOther), _mm256_blend_epi32(h, l, kOther)});
  }
}
KVARENA_INLINE U32x16 add_pairs(U32x16 sum, U32x16 a, U32x16 b) {
  return {_mm256_add_epi32(sum.l, _mm256_madd_epi16(a.l, b.l)), _mm256_add_epi32(sum.h, _mm256_madd_epi16(a.h, b.h))};
}
KVARENA_INLINE __m256 f16_lanes8(__m256i a) {
  const __m128i both = _mm_packus_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  return _mm256_cvtph_ps(both);
}
KVARENA_INLINE F32x16 f16_lanes(U32x16 a) { return {f16_lanes8(a.l), f16_lanes8(a.h)}; }
/// table[lowest 4 bits of each lane] of sixteen numbers in two registers: looked up in both, chosen by bit 3.
KVARENA_INLINE __m256 look_up8(__m256i a, F32x16 table) {
  const __m256 third = _mm256_castsi256_ps(_mm256_slli_epi32(a, 28));
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.l, a), _mm256_permutevar8x32_ps(table.h, a), third);
}
template <int BITS>
KVARENA_INLINE F32x16 look_up(U32x16 a, F32x16 table) {
  if constexpr (BITS <= 3) {
    return {_mm256_permutevar8x32_ps(table.l, a.l), _mm256_permutevar8x32_ps(table.l, a.h)};
  } else {
    return {look_up8(a.l, table), look_up8(a.h, table)};
  }
}
KVARENA_INLINE F32x16 look_up(U32x16 a, F32x16 low, F32x16 high) {
  const __m256 fourth_l = _mm256_castsi256_ps(_mm256_slli_epi32(a.l, 27));
  const __m256 fourth_h = _mm256_castsi256_ps(_mm256_slli_epi32(a.h, 27));
  return {_mm256_blendv_ps(look_up8(a.l, low), look_up8(a.l, high), fourth_l),
          _mm256_blendv_ps(look_up8(a.h, low), look_up8(a.h, high), fourth_h)};
}
template <int N>
KVARENA_INLINE F32x16 swap_lanes(F32x16 a) {
  if constexpr (N == 8) return {a.h, a.l};
  if constexpr (N == 4) return {_mm256_permute2f128_ps(a.l, a.l, 1), _mm256_permute2f128_ps(a.h, a.h, 1)};
  constexpr int kFrom = N == 1 ? 0xb1 : 0x4e;
  return {_mm256_permute_ps(a.l, kFrom), _mm256_permute_ps(a.h, kFrom)};
}

#endif

/// The lanes' sum by one fixed tree: i with i+8, then i+4, i+2, i+1.
KVARENA_INLINE float sum_lanes(F32x16 a) {
  const __m256 eight = _mm256_add_ps(low8(a), high8(a));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

KVARENA_INLINE float max_lanes(F32x16 a) {
  const __m256 eight = _mm256_max_ps(low8(a), high8(a));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/// e^x within 2 units in the last place (a polynomial of degree 7 on [-ln2/2, ln2/2], Taylor coefficients). Below
/// -87.33 the result is 0, above 88.37 it stays at e^88.37; NaN stays NaN.
KVARENA_INLINE F32x16 exp16(F32x16 x) {
  const F32x16 lowest = set16(-87.336544f);
  const Mask16 vanishes = less(x, lowest);
  const F32x16 clamped = max(lowest, min(set16(88.37f), x));
  const F32x16 n = round16(mul(clamped, set16(1.44269504f)));
  F32x16 r = fma(n, set16(-0.693359375f), clamped);
  r = fma(n, set16(2.12194440e-4f), r);
  F32x16 p = set16(1.0f / 5040);
  p = fma(p, r, set16(1.0f / 720));
  p = fma(p, r, set16(1.0f / 120));
  p = fma(p, r, set16(1.0f / 24));
  p = fma(p, r, set16(1.0f / 6));
  p = fma(p, r, set16(0.5f));
  p = fma(p, r, set16(1.0f));
  p = fma(p, r, set16(1.0f));
  return select(vanishes, zero16(), add_exponent(p, n));
}

/// Natural logarithm of normal positive numbers, within 2 units in the last place: of x = m 2^n with m from sqrt(1/2)
/// to sqrt(2), n log 2 + log m by the polynomial of Cephes' logf.
KVARENA_INLINE F32x16 log16(F32x16 x) {
  const U32x16 shifted = add(bits_of(x), set_u32(0x3f800000 - 0x3f3504f3));
  const F32x16 n = sub(numbers(shift_right(shifted, 23)), set16(127.0f));
  const F32x16 m = bits_of(add(masked(shifted, 0x007fffff), set_u32(0x3f3504f3)));
  const F32x16 r = sub(m, set16(1.0f)), square = mul(r, r);
  F32x16 p = set16(7.0376836292e-2f);
  p = fma(p, r, set16(-1.1514610310e-1f));
  p = fma(p, r, set16(1.1676998740e-1f));
  p = fma(p, r, set16(-1.2420140846e-1f));
  p = fma(p, r, set16(1.4249322787e-1f));
  p = fma(p, r, set16(-1.6668057665e-1f));
  p = fma(p, r, set16(2.0000714765e-1f));
  p = fma(p, r, set16(-2.4999993993e-1f));
  p = fma(p, r, set16(3.3333331174e-1f));
  F32x16 y = mul(mul(p, r), square);
  y = fma(n, set16(-2.12194440e-4f), y);
  y = fma(square, set16(-0.5f), y);
  return fma(n, set16(0.693359375f), add(r, y));
}

/// exp16() of one number, with the same operations.
KVARENA_INLINE float exp1(float x) { return _mm_cvtss_f32(_mm256_castps256_ps128(low8(exp16(set16(x))))); }

/// sum of x[c] * y[c] over 16 lanes (c modulo 16, ascending, fused) and the fixed tree; n a multiple of 16.
template <class T>
KVARENA_INLINE float dot_lanes(const float* x, T, const typename T::Stored* y, int64_t n) {
  F32x16 sum = zero16();
  for (int64_t c = 0; c < n; c += kLanes) sum = fma(load16(x + c), load16(T{}, y + c), sum);
  return sum_lanes(sum);
}

/// Calls f(T{}) with the tag of the stored format.
template <class F>
KVARENA_INLINE void with_format(int dtype, const F& f) {  // 0 f32, 1 f16, 2 bf16: the order of DType
  switch (dtype) {
    case 0: f(F32{}); return;
    case 1: f(F16{}); return;
    default: f(BF16{}); return;
  }
}

}  // namespace
}  // namespace kvarena::kernels
