#pragma once
// Per-path internal: unpacking of codes, and dot products of query rows with packed keys.
//
// Codes of a cell go through the first-level cache as floats: unpacking (shift, look-up, store) is done once for all
// query rows. Scale and zero never meet the codes: a query is scaled once per group of entries.

#include "kernels/cells/touch_simd.h"
#include "kernels/common/simd.h"
#include "kernels/quantize/packed_work.h"

namespace kvarena::kernels {
namespace {

template <int BITS>
struct Width {
  static constexpr int value = BITS;
};

/// Calls f with the width as a constant.
template <class F>
KVARENA_INLINE void with_bits(int bits, const F& f) {
  switch (bits) {
    case 1: f(Width<1>{}); return;
    case 2: f(Width<2>{}); return;
    case 3: f(Width<3>{}); return;
    case 4: f(Width<4>{}); return;
    default: f(Width<8>{}); return;
  }
}

/// Codes 0 .. n-1 of every lane as floats [n][16]; writes whole_codes(n) of them.
template <int BITS>
void unpack_lanes(const uint32_t* planes, int64_t n, float* out) {
  if constexpr (BITS == 3) {  // 32 codes in three dwords; codes 10 and 21 cross
    const int64_t total = (n * 3 + 31) / 32;
    for (int64_t j = 0, plane = 0; j < n; j += 32, plane += 3) {
      const U32x16 a = load_u32(planes + plane * kLanes);
      const U32x16 b = load_u32(planes + min_of(plane + 1, total - 1) * kLanes);
      const U32x16 c = load_u32(planes + min_of(plane + 2, total - 1) * kLanes);
      float* to = out + j * kLanes;
#pragma GCC unroll 10
      for (int i = 0; i < 10; ++i) store16(to + i * kLanes, low_bits<3>(shift_right(a, 3 * i)));
      store16(to + 10 * kLanes, low_bits<3>(either(shift_right(a, 30), shift_left(b, 2))));
#pragma GCC unroll 10
      for (int i = 0; i < 10; ++i) store16(to + (11 + i) * kLanes, low_bits<3>(shift_right(b, 3 * i + 1)));
      store16(to + 21 * kLanes, low_bits<3>(either(shift_right(b, 31), shift_left(c, 1))));
#pragma GCC unroll 10
      for (int i = 0; i < 10; ++i) store16(to + (22 + i) * kLanes, low_bits<3>(shift_right(c, 3 * i + 2)));
    }
  } else {
    constexpr int kPer = 32 / BITS;
    for (int64_t j = 0; j < n; j += kPer, planes += kLanes) {
      const U32x16 word = load_u32(planes);
#pragma GCC unroll 32
      for (int i = 0; i < kPer; ++i) store16(out + (j + i) * kLanes, low_bits<BITS>(shift_right(word, BITS * i)));
    }
  }
}

/// Codes first .. first+n-1 of every lane.
template <int BITS>
void unpack_some(const uint32_t* planes, int64_t first, int64_t n, float* out) {
  for (int64_t j = 0; j < n; ++j) {
    const int64_t bit = (first + j) * BITS;
    const int shift = static_cast<int>(bit % 32);
    const uint32_t* word = planes + bit / 32 * kLanes;
    U32x16 code = shift_right(load_u32(word), shift);
    if (shift + BITS > 32) code = either(code, shift_left(load_u32(word + kLanes), 32 - shift));
    store16(out + j * kLanes, low_bits<BITS>(code));
  }
}

/// Query rows times scale, and their products with zero, for one group of entries.
template <class M>
KVARENA_INLINE float scale_query(const float* q, const uint16_t* scale, const uint16_t* zero, int64_t n, float* out) {
  for (int64_t c = 0; c < n; c += kLanes) store16(out + c, mul(load16(q + c), load16(M{}, scale + c)));
  return dot_lanes(q, M{}, zero, n);
}

/// The codes of CELLS touched cells as floats, [CELLS][whole_codes(head_dim)][16].
template <int CELLS>
void unpack_keys(const PackedEntries& keys, const Touch* touches, float* codes) {
  const int64_t d = keys.head_dim, planes = packed_planes(d, keys.format.bits);
  with_bits(keys.format.bits, [&](auto width) {
    for (int j = 0; j < CELLS; ++j) {
      unpack_lanes<decltype(width)::value>(keys.codes + touches[j].cell * planes * kLanes, d,
                                           codes + j * whole_codes(d) * kLanes);
    }
  });
}

/// One row tile over CELLS unpacked cells, each with its own scaled queries [ROWS][head_dim]; sink(i, j, dot).
template <int ROWS, int CELLS, class Sink>
KVARENA_INLINE void packed_tile(int64_t d, const float* codes, const float* const (&scaled)[CELLS],
                                const float (&bias)[CELLS][kPackedRows], const Sink& sink) {
  F32x16 acc[ROWS][CELLS];
  for (auto& a : acc) {
    for (auto& b : a) b = zero16();
  }
  const int64_t cell_size = whole_codes(d) * kLanes;
  const float* q[CELLS];
  for (int j = 0; j < CELLS; ++j) q[j] = scaled[j];
  for (int64_t c = 0; c < d; ++c) {
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) {
      const F32x16 k = load16(codes + j * cell_size + c * kLanes);
#pragma GCC unroll 6
      for (int i = 0; i < ROWS; ++i) acc[i][j] = fma(set16(q[j][i * d + c]), k, acc[i][j]);
    }
  }
  for (int i = 0; i < ROWS; ++i) {
    for (int j = 0; j < CELLS; ++j) sink(i, j, add(acc[i][j], set16(bias[j][i])));
  }
}

/// Whether codes of this width meet this many rows in registers.
KVARENA_INLINE bool fuses(int bits, int64_t rows) {
#if defined(KVARENA_SIMD_AVX512)
  return bits != 3 && rows <= kFusedRows;
#else
  return bits < 0 && rows < 0;  // never: sixteen registers do not hold words, codes and sums
#endif
}

/// packed_tile() without the detour through memory.
template <int BITS, int ROWS, int CELLS, class Sink>
KVARENA_INLINE void fused_tile(int64_t d, const uint32_t* const (&cells)[CELLS], const float* const (&scaled)[CELLS],
                               const float (&bias)[CELLS][kPackedRows], const Sink& sink) {
  constexpr int kPer = 32 / BITS;
  F32x16 acc[ROWS][CELLS];
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) acc[i][j] = zero16();
  }
  const float* q[CELLS];
  const uint32_t* planes[CELLS];
  for (int j = 0; j < CELLS; ++j) q[j] = scaled[j];
  for (int j = 0; j < CELLS; ++j) planes[j] = cells[j];
  int64_t c = 0;
  for (; c + kPer <= d; c += kPer) {
    U32x16 word[CELLS];
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) {
      word[j] = load_u32(planes[j]);
      planes[j] += kLanes;
      fetch(planes[j] + CELLS * (d / kPer) * kLanes);
    }
#pragma GCC unroll 32
    for (int s = 0; s < kPer; ++s) {
#pragma GCC unroll 4
      for (int j = 0; j < CELLS; ++j) {
        const F32x16 k = low_bits<BITS>(shift_right(word[j], BITS * s));
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; ++i) acc[i][j] = fma(set16(q[j][i * d + c + s]), k, acc[i][j]);
      }
    }
  }
  for (int s = 0; c + s < d; ++s) {  // half a word: 1 bit and an odd multiple of 16 channels
    for (int j = 0; j < CELLS; ++j) {
      const F32x16 k = low_bits<BITS>(shift_right(load_u32(planes[j]), BITS * s));
      for (int i = 0; i < ROWS; ++i) acc[i][j] = fma(set16(q[j][i * d + c + s]), k, acc[i][j]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) sink(i, j, add(acc[i][j], set16(bias[j][i])));
  }
}

template <int BITS, int CELLS, class Sink>
void fused_rows(int64_t rows, int64_t d, const uint32_t* const (&cells)[CELLS], const float* const (&scaled)[CELLS],
                const float (&bias)[CELLS][kPackedRows], const Sink& sink) {
  switch (rows) {
    case 1: return fused_tile<BITS, 1, CELLS>(d, cells, scaled, bias, sink);
    case 2: return fused_tile<BITS, 2, CELLS>(d, cells, scaled, bias, sink);
    case 3: return fused_tile<BITS, 3, CELLS>(d, cells, scaled, bias, sink);
    default: return fused_tile<BITS, 4, CELLS>(d, cells, scaled, bias, sink);
  }
}

/// Up to kPackedRows query rows against CELLS touched cells. `codes` holds their unpacked codes, or is null where
/// fuses() says so. `queries` is scratch of CELLS * kPackedRows * head_dim floats.
template <int CELLS, class Sink>
void dot_packed(const PackedEntries& keys, const float* const* q, int64_t rows, const Touch* touches,
                const float* codes, float* queries, const Sink& sink) {
  const int64_t d = keys.head_dim;
  const float* scaled[CELLS] = {};
  float bias[CELLS][kPackedRows] = {};
  int64_t previous = -1;
  for (int j = 0; j < CELLS; ++j) {
    const int64_t group = touches[j].cell * kCell / keys.format.group_size;
    if (j > 0 && group == previous) {
      scaled[j] = scaled[j - 1];
      for (int64_t i = 0; i < rows; ++i) bias[j][i] = bias[j - 1][i];
      continue;
    }
    previous = group;
    float* to = queries + j * kPackedRows * d;
    scaled[j] = to;
    for (int64_t i = 0; i < rows; ++i) {
      const uint16_t* scale = keys.scale + group * d;
      const uint16_t* zero = keys.zero + group * d;
      bias[j][i] = keys.format.meta == DType::bf16 ? scale_query<BF16>(q[i], scale, zero, d, to + i * d)
                                                   : scale_query<F16>(q[i], scale, zero, d, to + i * d);
    }
  }
#if defined(KVARENA_SIMD_AVX512)
  if (codes == nullptr) {
    const uint32_t* cells[CELLS];
    for (int j = 0; j < CELLS; ++j) {
      cells[j] = keys.codes + touches[j].cell * packed_planes(d, keys.format.bits) * kLanes;
    }
    switch (keys.format.bits) {
      case 1: return fused_rows<1, CELLS>(rows, d, cells, scaled, bias, sink);
      case 2: return fused_rows<2, CELLS>(rows, d, cells, scaled, bias, sink);
      case 4: return fused_rows<4, CELLS>(rows, d, cells, scaled, bias, sink);
      default: return fused_rows<8, CELLS>(rows, d, cells, scaled, bias, sink);
    }
  }
#endif
  switch (rows) {
    case 1: return packed_tile<1, CELLS>(d, codes, scaled, bias, sink);
    case 2: return packed_tile<2, CELLS>(d, codes, scaled, bias, sink);
    case 3: return packed_tile<3, CELLS>(d, codes, scaled, bias, sink);
    case 4: return packed_tile<4, CELLS>(d, codes, scaled, bias, sink);
    case 5: return packed_tile<5, CELLS>(d, codes, scaled, bias, sink);
    default: return packed_tile<6, CELLS>(d, codes, scaled, bias, sink);
  }
}

}  // namespace
}  // namespace kvarena::kernels
