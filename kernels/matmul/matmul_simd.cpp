// Two shapes of the same sum. Few rows: the accumulators of up to twelve (AVX2: six) for two lanes of sixteen columns
// stay in registers while the panel streams by, more rows take it again from the cache; with one to three rows four
// panels run side by side, because one stream does not fill the memory's queue. Many rows: register tiles of tile_rows
// x 32 (AVX-512) or x 16 (AVX2) over packed rows.
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

/// Steps of depth that lie side by side in a panel.
template <class T>
constexpr int kSteps = 1;
template <>
constexpr int kSteps<BF16> = 2;

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
        for (int v = 0; v < VECS; ++v) acc[p][v][i] = fma(xi, w[v], acc[p][v][i]);
      }
    }
  }
}

/// VECS vectors of each of PANELS panels, ROWS rows, of which the first is row `row`.
template <class T, int ROWS, int PANELS, int VECS>
void stream_tile(const StreamArgs& args, int64_t row, const typename T::Stored* panel, int64_t column, int64_t ahead) {
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
  for (; c + kSide <= args.k; c += kSide, x += kSide * m, panel += kSide * kPanel) {
    stream_step<T, kSide>(x, m, panel, next_panel, ahead, acc);
  }
  if (c < args.k) stream_step<T, 1>(x, m, panel, next_panel, ahead, acc);
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
  constexpr int kVector = kSteps<T> * kLanes;  // elements
  const auto* data = static_cast<const typename T::Stored*>(args.data);
  const int64_t panel_size = args.panel_bytes / static_cast<int64_t>(sizeof(typename T::Stored));
  const bool last_of_passes = args.m > kPassRows && row + ROWS == args.m;
  const int64_t ahead = last_of_passes ? (end - begin) * panel_size : kAhead;
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

/// `rows` rows from row `row` on. More than a pass takes are several passes, of which all but the first find the panels
/// in the cache and the last asks for those that come next.
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
    case 12: return stream_panels<T, 12>(args, row, begin, end);
#endif
    default:
      stream_rows<T>(args, row, (rows + 1) / 2, begin, end);
      return stream_rows<T>(args, row + (rows + 1) / 2, rows / 2, begin, end);
  }
}

void stream(const StreamArgs& args, int64_t begin, int64_t end) {
  // As many panels at a time as run side by side.
  const int64_t group = args.m > kPassRows ? 1 : 4;
  for (int64_t panel = begin; panel < end; panel += group) {
    with_format(static_cast<int>(args.dtype), [&](auto format) {
      stream_rows<decltype(format)>(args, 0, args.m, panel, min_of(end, panel + group));
    });
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
void pack_few(const float* x, int64_t x_stride, int64_t m, int64_t k, float* packed) {
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

void pack_tile(const float* x, int64_t x_stride, int64_t rows, int64_t k, float* tile) {
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

void widen(const void* panel, DType dtype, int64_t depth, float* out) {
  with_format(static_cast<int>(dtype), [&](auto format) {
    constexpr int kSide = kSteps<decltype(format)>;
    const auto* stored = static_cast<const typename decltype(format)::Stored*>(panel);
    for (int64_t c = 0; c < depth; c += kSide) {  // of an odd depth the last step is padding and has room
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v, stored += kSide * kLanes) {
        fetch(stored + kAhead);
#pragma GCC unroll 2
        for (int s = 0; s < kSide; ++s) store16(out + (c + s) * kPanel + v * kLanes, load_step(format, stored, s));
      }
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

void tile(const float* x, const void* stored, int64_t rows, int64_t depth, bool first, float* c) {
  const auto* panel = static_cast<const float*>(stored);
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

void nothing() {}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const MatmulTable matmul_table;
const MatmulTable matmul_table = {
    .floats = {.few_rows = kFewRows,
               .few_floats = kFewRows,
               .tile_rows = kTileRows,
               .tile_floats = kTileRows,
               .depth = kDepth,
               .enter = nothing,
               .leave = nothing,
               .pack_few = pack_few,
               .stream = stream,
               .pack_tile = pack_tile,
               .widen = widen,
               .tile = tile},
    .write = write,
    .add_magnitudes = add_magnitudes,
    .take_larger = take_larger,
};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
