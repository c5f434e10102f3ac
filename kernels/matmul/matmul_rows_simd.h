#pragma once
// Products of few and of many rows, whatever the weights' format: shared by the sources that multiply in floats and in
// pairs of bf16.
//
// Two shapes of the same sum. Few rows: the accumulators of up to twelve (AVX2: six) for two lanes of sixteen columns
// stay in registers while the panel streams by, more rows take it again from the cache; with one to three rows four
// panels run side by side, because one stream does not fill the memory's queue. Many rows: register tiles of tile_rows
// x 32 (AVX-512) or x 16 (AVX2) over packed rows.
#include "kernels/common/pairs_simd.h"
#include "kernels/matmul/matmul_simd.h"

namespace kvarena::kernels {
namespace {

constexpr int64_t kPanel = PackedMatrix::kPanel;
#if defined(KVARENA_SIMD_AVX512)
constexpr int kTileRows = 12, kTileVecs = 2;
constexpr int kAccumulators = 24;
constexpr int64_t kPassRows = 12, kFewRows = 48;
#else
constexpr int kTileRows = 6, kTileVecs = 1;
constexpr int kAccumulators = 6;
constexpr int64_t kPassRows = 6, kFewRows = 12;
#endif

/// Depth of a cache block when there are many rows: kDepth * 32 floats of weights and a tile of rows fit the
/// first-level cache, of 32 KiB with six rows to a tile and of 48 KiB with twelve.
constexpr int64_t kDepth = 192;
/// Distance of prefetched weights, in elements: 24 steps of depth.
constexpr int64_t kAhead = 24 * kPanel;

/// Two neighbouring steps of depth in bf16, the earlier one in the lower half, as one number of rows and of weights.
struct Pairs {
  using Stored = float;
};

/// Steps of depth that lie side by side in a panel; pairs are a step.
template <class T>
constexpr int kSteps = 1;
template <>
constexpr int kSteps<BF16> = 2;

KVARENA_INLINE F32x16 load16(Pairs, const float* p) { return load16(p); }

/// sum + x * w.
template <class T>
KVARENA_INLINE F32x16 add_product(T, F32x16 sum, F32x16 x, F32x16 w) {
  return fma(x, w, sum);
}
KVARENA_INLINE F32x16 add_product(Pairs, F32x16 sum, F32x16 x, F32x16 w) { return add_pair(sum, x, w); }

/// Sixteen columns of step `step` of those that lie side by side at p.
template <class T>
KVARENA_INLINE F32x16 load_step(T, const typename T::Stored* p, int) {
  return load16(T{}, p);
}
KVARENA_INLINE F32x16 load_step(BF16, const uint16_t* p, int step) {
  const U32x16 both = load_u32(reinterpret_cast<const uint32_t*>(p));
  return bits_of(step == 0 ? shift_left(both, 16) : masked(both, 0xffff0000U));
}

/// The first STEPS of the steps side by side at `panel`, of all accumulators. Asks for what lies `ahead` of it.
template <class T, int STEPS, int ROWS, int PANELS, int VECS>
KVARENA_INLINE void stream_step(const float* x, int64_t m, const typename T::Stored* panel, int64_t next_panel,
                                int64_t ahead, F32x16 (&acc)[PANELS][VECS][ROWS]) {
  constexpr int kSide = kSteps<T>;
#pragma GCC unroll 4
  for (int p = 0; p < PANELS; ++p, panel += next_panel) {
    fetch(panel + ahead);
    if (kSide * sizeof(typename T::Stored) == 4 && VECS == 2) fetch(panel + ahead + kSide * kLanes);
#pragma GCC unroll 2
    for (int s = 0; s < STEPS; ++s) {
      F32x16 w[VECS];
#pragma GCC unroll 2
      for (int v = 0; v < VECS; ++v) w[v] = load_step(T{}, panel + v * kSide * kLanes, s);
#pragma GCC unroll 12
      for (int i = 0; i < ROWS; ++i) {
        const F32x16 xi = set16(x[s * m + i]);
#pragma GCC unroll 2
        for (int v = 0; v < VECS; ++v) acc[p][v][i] = add_product(T{}, acc[p][v][i], xi, w[v]);
      }
    }
  }
}

/// Weights to ask for, in elements: so far in front of the first step, and by `slower` a step less far.
struct Ahead {
  int64_t first = kAhead, slower = 0;
};

/// VECS vectors of each of PANELS panels, ROWS rows, of which the first is row `row`.
template <class T, int ROWS, int PANELS, int VECS>
void stream_tile(const StreamArgs& args, int64_t row, const typename T::Stored* panel, int64_t column, Ahead ahead) {
  constexpr int kSide = kSteps<T>;
  const int64_t next_panel = args.panel_bytes / static_cast<int64_t>(sizeof(typename T::Stored)), m = args.m;
  const float* x = args.x + row;
  F32x16 acc[PANELS][VECS][ROWS];
#pragma GCC unroll 4
  for (int p = 0; p < PANELS; ++p) {
#pragma GCC unroll 2
    for (int v = 0; v < VECS; ++v) {
#pragma GCC unroll 12
      for (int i = 0; i < ROWS; ++i) acc[p][v][i] = zero16();
    }
  }
  int64_t c = 0;
  for (; c + kSide <= args.k; c += kSide, x += kSide * m, panel += kSide * kPanel, ahead.first -= ahead.slower) {
    stream_step<T, kSide>(x, m, panel, next_panel, ahead.first, acc);
  }
  if (c < args.k) stream_step<T, 1>(x, m, panel, next_panel, ahead.first, acc);
#pragma GCC unroll 4
  for (int p = 0; p < PANELS; ++p) {
#pragma GCC unroll 2
    for (int v = 0; v < VECS; ++v) {
#pragma GCC unroll 12
      for (int i = 0; i < ROWS; ++i) write16(args, row + i, column + p * kPanel + v * kLanes, acc[p][v][i]);
    }
  }
}

template <class T, int ROWS>
void stream_panels(const StreamArgs& args, int64_t row, int64_t begin, int64_t end, Ahead ahead) {
  constexpr int VECS = 2 * ROWS <= kAccumulators ? 2 : 1;
  constexpr int kFit = kAccumulators / (VECS * ROWS);
  constexpr int PANELS = kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
  constexpr int kVector = kSteps<T> * kLanes;  // elements
  const auto* data = static_cast<const typename T::Stored*>(args.data);
  const int64_t panel_size = args.panel_bytes / static_cast<int64_t>(sizeof(typename T::Stored));
  int64_t panel = begin;
  for (; panel + PANELS <= end; panel += PANELS) {
    for (int v = 0; v < 2; v += VECS) {
      stream_tile<T, ROWS, PANELS, VECS>(args, row, data + panel * panel_size + v * kVector,
                                         panel * kPanel + v * kLanes, ahead);
    }
  }
  for (; panel < end; ++panel) {
    for (int v = 0; v < 2; v += VECS) {
      stream_tile<T, ROWS, 1, VECS>(args, row, data + panel * panel_size + v * kVector, panel * kPanel + v * kLanes,
                                    ahead);
    }
  }
}

/// At most kPassRows rows from row `row` on.
template <class T>
void stream_pass(const StreamArgs& args, int64_t row, int64_t rows, int64_t begin, int64_t end, Ahead ahead) {
  switch (rows) {
    case 1: return stream_panels<T, 1>(args, row, begin, end, ahead);
    case 2: return stream_panels<T, 2>(args, row, begin, end, ahead);
    case 3: return stream_panels<T, 3>(args, row, begin, end, ahead);
    case 4: return stream_panels<T, 4>(args, row, begin, end, ahead);
    case 5: return stream_panels<T, 5>(args, row, begin, end, ahead);
    case 6: return stream_panels<T, 6>(args, row, begin, end, ahead);
#if defined(KVARENA_SIMD_AVX512)
    case 7: return stream_panels<T, 7>(args, row, begin, end, ahead);
    case 8: return stream_panels<T, 8>(args, row, begin, end, ahead);
    case 9: return stream_panels<T, 9>(args, row, begin, end, ahead);
    case 10: return stream_panels<T, 10>(args, row, begin, end, ahead);
    case 11: return stream_panels<T, 11>(args, row, begin, end, ahead);
    case 12: return stream_panels<T, 12>(args, row, begin, end, ahead);
#endif
  }
}

/// All rows by panels begin .. end-1. More rows than a pass takes are several passes, of which all but the first find
/// the panel in the cache and each asks for its part of the next one.
template <class T>
void stream_of(const StreamArgs& args, int64_t begin, int64_t end) {
  const int64_t passes = (args.m + kPassRows - 1) / kPassRows;
  if (passes == 1) {
    constexpr int64_t kTogether = 4;  // panels that run side by side
    for (int64_t panel = begin; panel < end; panel += kTogether)
      stream_pass<T>(args, 0, args.m, panel, min_of(end, panel + kTogether), {});
    return;
  }
  const int64_t panel_size = args.panel_bytes / static_cast<int64_t>(sizeof(typename T::Stored));
  for (int64_t panel = begin; panel < end; ++panel) {
    for (int64_t pass = 0, row = 0; pass < passes; ++pass) {
      const int64_t left = passes - pass, rows = (args.m - row + left - 1) / left;
      stream_pass<T>(
          args, row, rows, panel, panel + 1,
          {.first = panel_size + panel_size * pass / passes, .slower = kSteps<T> * kPanel * (passes - 1) / passes});
      row += rows;
    }
  }
}

/// Transposes four columns of four rows from x on: a column's rows go to out, the next column's `stride` further.
KVARENA_INLINE void pack_four(const float* x, int64_t x_stride, float* out, int64_t stride) {
  __m128 a = _mm_loadu_ps(x), b = _mm_loadu_ps(x + x_stride);
  __m128 c = _mm_loadu_ps(x + 2 * x_stride), d = _mm_loadu_ps(x + 3 * x_stride);
  _MM_TRANSPOSE4_PS(a, b, c, d);
  _mm_storeu_ps(out, a);
  _mm_storeu_ps(out + stride, b);
  _mm_storeu_ps(out + 2 * stride, c);
  _mm_storeu_ps(out + 3 * stride, d);
}

/// Rows as [k][m]: side by side, so that one pointer serves them all.
[[maybe_unused]] void pack_few(const float* x, int64_t x_stride, int64_t m, int64_t k, float* packed) {
  const auto pack = [&](int64_t first_row, int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) {
      for (int64_t i = first_row; i < m; ++i) packed[c * m + i] = x[i * x_stride + c];
    }
  };
  const int64_t rows = m / 4 * 4, columns = k / 4 * 4;
  for (int64_t c = 0; c < columns; c += 4) {
    for (int64_t i = 0; i < rows; i += 4) pack_four(x + i * x_stride + c, x_stride, packed + c * m + i, m);
    pack(rows, c, c + 4);
  }
  pack(0, columns, k);
}

[[maybe_unused]] void pack_tile(const float* x, int64_t x_stride, int64_t rows, int64_t k, float* tile) {
  int64_t c = 0;
  for (; rows == kTileRows && c + 4 <= k; c += 4) {
    // With six rows the middle two are transposed twice: that costs less than an instruction for each number.
    constexpr int kStep = kTileRows % 4 == 0 ? 4 : kTileRows - 4;
#pragma GCC unroll 3
    for (int i = 0; i + 4 <= kTileRows; i += kStep)
      pack_four(x + i * x_stride + c, x_stride, tile + c * kTileRows + i, kTileRows);
  }
  for (; c < k; ++c) {
    for (int64_t i = 0; i < kTileRows; ++i) tile[c * kTileRows + i] = i < rows ? x[i * x_stride + c] : 0.0f;
  }
}

template <class T, int ROWS>
void tile_rows(const float* x, const float* panel, int64_t depth, bool first, float* c) {
  for (int v0 = 0; v0 < 2; v0 += kTileVecs) {
    F32x16 acc[ROWS][kTileVecs];
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < kTileVecs; ++v) {
        acc[i][v] = first ? zero16() : load16(c + i * kPanel + (v0 + v) * kLanes);
      }
    }
    const float* a = x;
    const float* b = panel + v0 * kLanes;
    for (int64_t s = 0; s < depth; ++s, a += kTileRows, b += kPanel) {
      F32x16 w[kTileVecs];
#pragma GCC unroll 2
      for (int v = 0; v < kTileVecs; ++v) {
        w[v] = load16(b + v * kLanes);
      }
#pragma GCC unroll 12
      for (int i = 0; i < ROWS; ++i) {
        const F32x16 xi = set16(a[i]);
#pragma GCC unroll 2
        for (int v = 0; v < kTileVecs; ++v) acc[i][v] = add_product(T{}, acc[i][v], xi, w[v]);
      }
    }
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < kTileVecs; ++v) store16(c + i * kPanel + (v0 + v) * kLanes, acc[i][v]);
    }
  }
}

/// The rows of a tile times `steps` steps of a panel, each [32] floats or pairs.
template <class T>
void tile_of(const float* x, const float* panel, int64_t rows, int64_t steps, bool first, float* c) {
  if (rows <= kTileRows / 3) return tile_rows<T, kTileRows / 3>(x, panel, steps, first, c);
  if (rows <= 2 * kTileRows / 3) return tile_rows<T, 2 * kTileRows / 3>(x, panel, steps, first, c);
  tile_rows<T, kTileRows>(x, panel, steps, first, c);
}

}  // namespace
}  // namespace kvarena::kernels
