// Products of x rounded to bf16 with bf16 weights, two steps of depth an instruction where the processor has it
// (AVX512-BF16); elsewhere the same two fused multiply-adds.
#include "kernels/matmul/matmul_rows_simd.h"

namespace kvarena::kernels {
namespace {

constexpr int64_t kBlock = PackedMatrix::kTileDepth;  // steps of depth that panels are filled up to
constexpr int64_t kPairs = kBlock / 2;

void enter() { flush_denormals(); }
void leave() { keep_denormals(); }

/// Rounds a block of a row; what lies past its end is zero.
KVARENA_INLINE void round_block(const float* x, int64_t left, float* pairs) {
  auto* to = reinterpret_cast<uint16_t*>(pairs);
  for (int64_t c = 0; c < kBlock; c += kLanes) store16(BF16{}, to + c, load16(x + c, first_lanes(left - c)));
}

/// Rounds rows a block of depth at a time, and packs what `pack` lays out: `width` rows side by side.
template <int64_t ROWS, class F>
KVARENA_INLINE void pack_blocks(const float* x, int64_t x_stride, int64_t rows, int64_t k, int64_t width, float* packed,
                                const F& pack) {
  alignas(64) float block[ROWS * kPairs];
  for (int64_t c = 0; c < k; c += kBlock, packed += kPairs * width) {
    for (int64_t i = 0; i < rows; ++i) round_block(x + i * x_stride + c, k - c, block + i * kPairs);
    pack(block, packed);
  }
}

void pack_few_pairs(const float* x, int64_t x_stride, int64_t m, int64_t k, float* packed) {
  pack_blocks<kFewRows>(x, x_stride, m, k, m, packed,
                        [&](const float* block, float* to) { pack_few(block, kPairs, m, kPairs, to); });
}

void pack_tile_pairs(const float* x, int64_t x_stride, int64_t rows, int64_t k, float* tile) {
  pack_blocks<kTileRows>(x, x_stride, rows, k, kTileRows, tile,
                         [&](const float* block, float* to) { pack_tile(block, kPairs, rows, kPairs, to); });
}

/// Pairs of so many steps; of an odd number the last pair is half padding.
KVARENA_INLINE int64_t pairs_of(int64_t steps) { return (steps + 1) / 2; }

void stream(const StreamArgs& args, int64_t begin, int64_t end) {
  StreamArgs pairs = args;
  pairs.k = pairs_of(args.k);
  stream_of<Pairs>(pairs, begin, end);
}

void tile(const float* x, const void* panel, int64_t rows, int64_t depth, bool first, float* c) {
  tile_of<Pairs>(x, static_cast<const float*>(panel), rows, pairs_of(depth), first, c);
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const ProductTable rounded_products;
const ProductTable rounded_products = {
    .few_rows = kFewRows,
    .few_floats = kFewRows / 2,
    .tile_rows = kTileRows,
    .tile_floats = kTileRows / 2,
    .depth = 2 * kDepth,
    .enter = enter,
    .leave = leave,
    .pack_few = pack_few_pairs,
    .stream = stream,
    .pack_tile = pack_tile_pairs,
    .widen = nullptr,
    .tile = tile,
};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
