// Two shapes of the same sum. Few rows: the accumulators of all rows for two lanes of sixteen columns stay in
// registers while the panel streams by; with one to three rows four panels run side by side, because one stream does
// not fill the memory's queue. Many rows: register tiles of tile_rows x 32 (AVX-512) or x 16 (AVX2) over packed rows.
#include "kernels/common/simd.h"
#include "kernels/matmul/matmul_paths.h"

namespace kvarena::kernels {
namespace {

constexpr int64_t kPanel = PackedMatrix::kPanel;

#if defined(KVARENA_SIMD_AVX512)
constexpr int kTileRows = 12, kTileVecs = 2;
constexpr int kAccumulators = 24;
#else
constexpr int kTileRows = 6, kTileVecs = 1;
constexpr int kAccumulators = 6;
#endif

void write16(const StreamArgs& args, int64_t row, int64_t column, F32x16 y) {
  const int64_t left = args.n - column;
  if (left <= 0) return;
  const Mask16 lanes = first_lanes(left);
  if (args.bias != nullptr) y = add(y, load16(args.bias + column, lanes));
  store16(args.y + row * args.y_stride + column, y, lanes);
}

/// How far ahead weights are fetched, in steps of depth.
constexpr int64_t kAhead = 24;

/// VECS vectors of each of PANELS panels, ROWS rows, of which the first is row `row`.
template <class T, int ROWS, int PANELS, int VECS>
void stream_tile(const StreamArgs& args, int64_t row, const typename T::Stored* panel, int64_t column) {
  const int64_t next_panel = args.k * kPanel, m = args.m;
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
  for (int64_t c = 0; c < args.k; ++c, x += m, panel += kPanel) {
#pragma GCC unroll 4
    for (int p = 0; p < PANELS; ++p) {
      fetch(panel + p * next_panel + kAhead * kPanel);
      if (sizeof(typename T::Stored) == 4 && VECS == 2) fetch(panel + p * next_panel + kAhead * kPanel + kLanes);
#pragma GCC unroll 2
      for (int v = 0; v < VECS; ++v) {
        const F32x16 w = load16(T{}, panel + p * next_panel + v * kLanes);
#pragma GCC unroll 12
        for (int i = 0; i < ROWS; ++i) acc[p][v][i] = fma(set16(x[i]), w, acc[p][v][i]);
      }
    }
  }
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
void stream_panels(const StreamArgs& args, int64_t row, int64_t begin, int64_t end) {
  constexpr int VECS = 2 * ROWS <= kAccumulators ? 2 : 1;
  constexpr int kFit = kAccumulators / (VECS * ROWS);
  constexpr int PANELS = kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
  const auto* data = static_cast<const typename T::Stored*>(args.data);
  const int64_t panel_size = args.k * kPanel;
  int64_t panel = begin;
  for (; panel + PANELS <= end; panel += PANELS) {
    for (int v = 0; v < 2; v += VECS) {
      stream_tile<T, ROWS, PANELS, VECS>(args, row, data + panel * panel_size + v * kLanes,
                                         panel * kPanel + v * kLanes);
    }
  }
  for (; panel < end; ++panel) {
    for (int v = 0; v < 2; v += VECS) {
      stream_tile<T, ROWS, 1, VECS>(args, row, data + panel * panel_size + v * kLanes, panel * kPanel + v * kLanes);
    }
  }
}

/// `rows` rows from row `row` on.
template <class T>
void stream_rows(const StreamArgs& args, int64_t row, int64_t rows, int64_t begin, int64_t end) {
  switch (rows) {
    case 1: return stream_panels<T, 1>(args, row, begin, end);
    case 2: return stream_panels<T, 2>(args, row, begin, end);
    case 3: return stream_panels<T, 3>(args, row, begin, end);
    case 4: return stream_panels<T, 4>(args, row, begin, end);
    case 5: return stream_panels<T, 5>(args, row, begin, end);
    case 6: return stream_panels<T, 6>(args, row, begin, end);
#if defined(KVARENA_SIMD_AVX512)
    case 7: return stream_panels<T, 7>(args, row, begin, end);
    case 8: return stream_panels<T, 8>(args, row, begin, end);
    case 9: return stream_panels<T, 9>(args, row, begin, end);
    case 10: return stream_panels<T, 10>(args, row, begin, end);
    case 11: return stream_panels<T, 11>(args, row, begin, end);
    default: return stream_panels<T, 12>(args, row, begin, end);
#else
    default:  // two passes; the second finds the panels in the cache
      stream_rows<T>(args, row, 6, begin, end);
      return stream_rows<T>(args, row + 6, rows - 6, begin, end);
#endif
  }
}

void stream(const StreamArgs& args, int64_t begin, int64_t end) {
  // A few panels at a time, so that a second pass over the rows finds them in the cache.
  constexpr int64_t kGroup = 4;
  for (int64_t panel = begin; panel < end; panel += kGroup) {
    with_format(static_cast<int>(args.dtype), [&](auto format) {
      stream_rows<decltype(format)>(args, 0, args.m, panel, min_of(end, panel + kGroup));
    });
  }
}

/// Four columns of four rows from x on, turned.
KVARENA_INLINE void pack_four(const float* x, int64_t x_stride, float* tile) {
  __m128 a = _mm_loadu_ps(x), b = _mm_loadu_ps(x + x_stride);
  __m128 c = _mm_loadu_ps(x + 2 * x_stride), d = _mm_loadu_ps(x + 3 * x_stride);
  _MM_TRANSPOSE4_PS(a, b, c, d);
  _mm_storeu_ps(tile, a);
  _mm_storeu_ps(tile + kTileRows, b);
  _mm_storeu_ps(tile + 2 * kTileRows, c);
  _mm_storeu_ps(tile + 3 * kTileRows, d);
}

void pack_tile(const float* x, int64_t x_stride, int64_t rows, int64_t k, float* tile) {
  int64_t c = 0;
  for (; rows == kTileRows && c + 4 <= k; c += 4) {
    // Of six rows the middle two are turned twice: that costs less than an instruction for each number.
    constexpr int kStep = kTileRows % 4 == 0 ? 4 : kTileRows - 4;
#pragma GCC unroll 3
    for (int i = 0; i + 4 <= kTileRows; i += kStep) pack_four(x + i * x_stride + c, x_stride, tile + c * kTileRows + i);
  }
  for (; c < k; ++c) {
    for (int64_t i = 0; i < kTileRows; ++i) tile[c * kTileRows + i] = i < rows ? x[i * x_stride + c] : 0.0f;
  }
}

void widen(const void* panel, DType dtype, int64_t depth, float* out) {
  with_format(static_cast<int>(dtype), [&](auto format) {
    const auto* stored = static_cast<const typename decltype(format)::Stored*>(panel);
    for (int64_t i = 0; i < depth * kPanel; i += kLanes) {
      fetch(stored + i + kAhead * kPanel);
      store16(out + i, load16(format, stored + i));
    }
  });
}

template <int ROWS>
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
        for (int v = 0; v < kTileVecs; ++v) acc[i][v] = fma(xi, w[v], acc[i][v]);
      }
    }
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < kTileVecs; ++v) store16(c + i * kPanel + (v0 + v) * kLanes, acc[i][v]);
    }
  }
}

void tile(const float* x, const float* panel, int64_t rows, int64_t depth, bool first, float* c) {
  if (rows <= kTileRows / 3) return tile_rows<kTileRows / 3>(x, panel, depth, first, c);
  if (rows <= 2 * kTileRows / 3) return tile_rows<2 * kTileRows / 3>(x, panel, depth, first, c);
  tile_rows<kTileRows>(x, panel, depth, first, c);
}

void write(const float* c, int64_t rows, int64_t columns, const float* bias, float* y, int64_t y_stride) {
  for (int v = 0; v < 2; ++v) {
    const Mask16 lanes = first_lanes(columns - v * kLanes);
    const F32x16 shift = bias == nullptr ? zero16() : load16(bias + v * kLanes, lanes);
    for (int64_t i = 0; i < rows; ++i) {
      const F32x16 sum = load16(c + i * kPanel + v * kLanes);
      store16(y + i * y_stride + v * kLanes, bias == nullptr ? sum : add(sum, shift), lanes);
    }
  }
}

void add_magnitudes(const float* c, int64_t rows, float* lanes) {
  for (int64_t i = 0; i < rows * kPanel; i += kLanes) store16(lanes + i, add(load16(lanes + i), abs16(load16(c + i))));
}

void take_larger(const float* c, int64_t rows, float panel, float* best, float* panels) {
  for (int64_t i = 0; i < rows * kPanel; i += kLanes) {
    const F32x16 now = load16(c + i), before = load16(best + i);
    const Mask16 larger = less(before, now);
    store16(best + i, select(larger, now, before));
    store16(panels + i, select(larger, set16(panel), load16(panels + i)));
  }
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const MatmulTable matmul_table;
const MatmulTable matmul_table = {kTileRows, stream, pack_tile, widen, tile, write, add_magnitudes, take_larger};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
