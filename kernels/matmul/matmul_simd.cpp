// Products in floats: weights of 16 bits are widened as they come.
#include "kernels/matmul/matmul_simd.h"

#include "kernels/matmul/matmul_rows_simd.h"

namespace kvarena::kernels {
namespace {

void stream(const StreamArgs& args, int64_t begin, int64_t end) {
  with_format(static_cast<int>(args.form), [&](auto format) { stream_of<decltype(format)>(args, begin, end); });
}

void widen(const void* panel, WeightForm form, int64_t first, int64_t steps, float* out) {
  with_format(static_cast<int>(form), [&](auto format) {
    constexpr int kSide = kSteps<decltype(format)>;
    const auto* stored = static_cast<const typename decltype(format)::Stored*>(panel) + first * kPanel;
    for (int64_t c = 0; c < steps; c += kSide) {  // of an odd depth the last step is padding and has room
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v, stored += kSide * kLanes) {
        fetch(stored + kAhead);
#pragma GCC unroll 2
        for (int s = 0; s < kSide; ++s) store16(out + (c + s) * kPanel + v * kLanes, load_step(format, stored, s));
      }
    }
  });
}

void tile(const float* x, const void* panel, int64_t rows, int64_t depth, bool first, float* c) {
  tile_of<F32>(x, static_cast<const float*>(panel), rows, depth, first, c);
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

/// Products that multiply float tiles, by weights that `stream` and `widen` read.
constexpr ProductTable float_products(int64_t few_rows, decltype(ProductTable::stream) stream,
                                      decltype(ProductTable::widen) widen) {
  return {.few_rows = few_rows,
          .few_floats = few_rows,
          .tile_rows = kTileRows,
          .tile_floats = kTileRows,
          .depth = kDepth,
          .enter = nothing,
          .leave = nothing,
          .pack_few = pack_few,
          .stream = stream,
          .pack_tile = pack_tile,
          .widen = widen,
          .tile = tile};
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const MatmulTable matmul_table;
const MatmulTable matmul_table = {
    .floats = float_products(kFewRows, stream, widen),
    .blocks = float_products(kFewBlockRows, stream_blocks, widen_blocks),
    .write = write,
    .add_magnitudes = add_magnitudes,
    .take_larger = take_larger,
};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
