// Products with bf16 weights in tiles (kernels/common/tiles.h). A tile of x holds 32 steps of depth of 16 rows, one of
// weights the same steps of 16 columns as they lie in a panel; a product of both is 16 x 16 sums.
//
// x is cut into three pieces of eight bits each, so that nothing of it is lost: against one rounded piece that is three
// products for one, where a tile product is sixteen times as fast as floats.
#include "kernels/common/tiles.h"
#include "kernels/matmul/matmul_simd.h"

namespace kvarena::kernels {
namespace {

constexpr int64_t kPanel = PackedMatrix::kPanel;
constexpr int64_t kBlock = PackedMatrix::kTileDepth;
constexpr int64_t kRows = 16;  // rows of a tile register
constexpr int kPieces = 3;
/// Bytes from one pair of steps of a panel to the next, and of the block of a panel that one product takes.
constexpr int64_t kPairBytes = kPanel * 4, kBlockBytes = kBlock * kPanel * 2;
constexpr int64_t kColumnBytes = kLanes * 4;  // bytes of sixteen columns of such a pair
constexpr int64_t kRowBytes = kBlock * 2;     // bytes of a row of x
/// Depth of a cache block: 32 KiB of a panel.
constexpr int64_t kTileBlockDepth = 512;

/// Stores the upper halves of sixteen numbers.
KVARENA_INLINE void store_upper(uint16_t* p, U32x16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(shift_right(a, 16).v));
}

/// Stores sixteen numbers as sums of three bf16 each: the first pieces at `pieces`, each other `next` elements further.
/// An infinity or a NaN is a first piece alone.
KVARENA_INLINE void store_pieces(F32x16 x, uint16_t* pieces, int64_t next) {
  const Mask16 finite = less(abs16(x), set16(__builtin_inff()));
  const Mask16 nan{_mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q)};
  const F32x16 upper = bits_of(masked(bits_of(x), 0xffff0000U));
  const F32x16 rest = select(finite, sub(x, upper), zero16());
  const F32x16 middle = bits_of(masked(bits_of(rest), 0xffff0000U));
  store_upper(pieces, bits_of(select(nan, set16(__builtin_nanf("")), upper)));
  store_upper(pieces + next, bits_of(middle));
  store_upper(pieces + 2 * next, bits_of(sub(rest, middle)));
}

/// Rows of x as [k / 32][piece][ROWS][32]; missing rows and steps zero.
template <int64_t ROWS>
void pack_pieces(const float* x, int64_t x_stride, int64_t rows, int64_t k, float* packed) {
  auto* out = reinterpret_cast<uint16_t*>(packed);
  for (int64_t block = 0; block < k; block += kBlock, out += kPieces * ROWS * kBlock) {
    for (int64_t i = 0; i < ROWS; ++i) {
      for (int64_t c = 0; c < kBlock; c += kLanes) {
        const F32x16 some = i < rows ? load16(x + i * x_stride + block + c, first_lanes(k - block - c)) : zero16();
        store_pieces(some, out + i * kBlock + c, ROWS * kBlock);
      }
    }
  }
}

/// Sixteen columns' sums take the products of one tile of weights with the three pieces in tiles 4 to 6.
template <int C>
KVARENA_INLINE void stream_columns(const char* weights) {
  for (int64_t pair = 0; pair < kRows; ++pair) fetch(weights + 2 * kBlockBytes + pair * kPairBytes);
  load_tile<7>(weights, kPairBytes);
  multiply_tiles<C, 4, 7>();
  multiply_tiles<C, 5, 7>();
  multiply_tiles<C, 6, 7>();
}

/// Multiplies all rows by one or two panels from `panel` on.
template <int PANELS>
void stream_panels(const StreamArgs& args, int64_t panel) {
  static_assert(PANELS == 1 || PANELS == 2);
  const char* weights = static_cast<const char*>(args.data) + panel * args.panel_bytes;
  const auto* x = reinterpret_cast<const char*>(args.x);
  zero_tile<0>();
  zero_tile<1>();
  zero_tile<2>();
  zero_tile<3>();
  for (int64_t c = 0; c < args.k; c += kBlock, weights += kBlockBytes, x += kPieces * kRows * kRowBytes) {
    load_tile<4>(x, kRowBytes);
    load_tile<5>(x + kRows * kRowBytes, kRowBytes);
    load_tile<6>(x + 2 * kRows * kRowBytes, kRowBytes);
    stream_columns<0>(weights);
    stream_columns<1>(weights + kColumnBytes);
    if (PANELS == 1) continue;
    stream_columns<2>(weights + args.panel_bytes);
    stream_columns<3>(weights + args.panel_bytes + kColumnBytes);
  }
  alignas(64) float sums[4][kRows][kLanes];
  store_tile<0>(sums[0], kColumnBytes);
  store_tile<1>(sums[1], kColumnBytes);
  store_tile<2>(sums[2], kColumnBytes);
  store_tile<3>(sums[3], kColumnBytes);
  for (int64_t row = 0; row < args.m; ++row) {
    for (int64_t v = 0; v < 2 * PANELS; ++v) {
      write16(args, row, panel * kPanel + v * kLanes, load16(sums[v][row]));
    }
  }
}

void stream(const StreamArgs& args, int64_t begin, int64_t end) {
  int64_t panel = begin;
  for (; panel + 2 <= end; panel += 2) stream_panels<2>(args, panel);
  if (panel < end) stream_panels<1>(args, panel);
}

/// Sums of the upper and, with HALVES 2, lower sixteen rows in tiles 0 to 3.
template <int HALVES>
void tile_rows(const char* x, const char* panel, int64_t depth, bool first, float* c) {
  constexpr int64_t kSumBytes = kPanel * 4;
  float* lower = c + kRows * kPanel;
  if (first) {
    zero_tile<0>();
    zero_tile<1>();
    if (HALVES == 2) zero_tile<2>();
    if (HALVES == 2) zero_tile<3>();
  } else {
    load_tile<0>(c, kSumBytes);
    load_tile<1>(c + kLanes, kSumBytes);
    if (HALVES == 2) load_tile<2>(lower, kSumBytes);
    if (HALVES == 2) load_tile<3>(lower + kLanes, kSumBytes);
  }
  for (int64_t block = 0; block < depth; block += kBlock, panel += kBlockBytes) {
    load_tile<4>(panel, kPairBytes);
    load_tile<5>(panel + kColumnBytes, kPairBytes);
#pragma GCC unroll 3
    for (int piece = 0; piece < kPieces; ++piece, x += 2 * kRows * kRowBytes) {
      load_tile<6>(x, kRowBytes);
      multiply_tiles<0, 6, 4>();
      multiply_tiles<1, 6, 5>();
      if (HALVES == 1) continue;
      load_tile<7>(x + kRows * kRowBytes, kRowBytes);
      multiply_tiles<2, 7, 4>();
      multiply_tiles<3, 7, 5>();
    }
  }
  store_tile<0>(c, kSumBytes);
  store_tile<1>(c + kLanes, kSumBytes);
  if (HALVES == 2) store_tile<2>(lower, kSumBytes);
  if (HALVES == 2) store_tile<3>(lower + kLanes, kSumBytes);
}

void tile(const float* x, const void* panel, int64_t rows, int64_t depth, bool first, float* c) {
  const auto* pieces = reinterpret_cast<const char*>(x);
  const auto* weights = static_cast<const char*>(panel);
  if (rows <= kRows) return tile_rows<1>(pieces, weights, depth, first, c);
  tile_rows<2>(pieces, weights, depth, first, c);
}

}  // namespace

namespace amx {
constexpr int64_t kFewFloats = kPieces * kRows / 2;  // floats of a step of depth: three pieces of two bytes
extern const ProductTable tile_products;
const ProductTable tile_products = {
    .few_rows = kRows,
    .few_floats = kFewFloats,
    .tile_rows = 2 * kRows,
    .tile_floats = 2 * kFewFloats,
    .depth = kTileBlockDepth,
    .enter = enter_tiles,
    .leave = leave_tiles,
    .pack_few = pack_pieces<kRows>,
    .stream = stream,
    .pack_tile = pack_pieces<2 * kRows>,
    .widen = nullptr,
    .tile = tile,
};
}  // namespace amx

}  // namespace kvarena::kernels
