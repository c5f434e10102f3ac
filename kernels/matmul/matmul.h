#pragma once
// y = x * w^T (+ bias) with weights that were packed once.
//
// Reduction order (a promise): every y[i, j] starts at 0 and takes x[i, c] * w[j, c] for c = 0 .. k-1 in ascending
// order, each by one fused multiply-add in float32; the bias is added last. Stored weights are widened to float32
// exactly, those of blocks to what weight_form.h defines. So a row of y has the same bits whatever other rows, columns
// or threads are in the call, and whatever form the same weights are stored in, on every SIMD path but amx. (The
// reference path accumulates in double and rounds once.)
//
// With Arithmetic::bf16, x is rounded to bf16 as bf16 weights are, to nearest even, and y takes two steps of depth
// after another: x[i, c+1] * w[j, c+1] and then x[i, c] * w[j, c] for c = 0, 2, 4 .. (of an odd k the last is alone),
// each by one fused multiply-add of which denormal operands and results count as zero. That is what VDPBF16PS computes,
// which runs at twice the rate of floats; every SIMD path gives its bits, amx included.
//
// On the amx path exact products with bf16 weights are computed in tiles. x is cut into three bf16 pieces, the upper,
// middle and lower eight bits of its significand, which lose nothing of it above 2^-110. For every 32 steps of depth in
// ascending order y takes the products of the upper pieces, then of the middle ones, then of the lower ones: each time
// the even steps and the odd steps are summed apart from 0 by fused multiply-adds, and y takes the sum of both sums.
// Denormal numbers count as zero. There too a row's bits are its own.
//
// Cost: 2*m*n*k flops, three times that in tiles; the bytes of the weights once for few rows (48, with AVX2 12, in
// tiles 16), above that once per 192 rows. Weights of blocks are unpacked in registers for up to 4 rows (AVX2 2), else
// into a block of the cache, once per 192 rows.

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "kernels/common/arithmetic.h"
#include "kernels/common/dtype.h"
#include "kernels/matmul/weight_form.h"

namespace kvarena::kernels {

/// Weights [n, k] in panels of kPanel output columns: [panel][k][kPanel], so that lanes run over output columns and one
/// row of x streams every panel front to back. Columns past n are zero. 64-byte aligned.
///
/// In bf16 two steps of depth lie side by side, [panel][k / 2][kPanel][2]: one load gives both, each a shift or a mask
/// away from float32, and tile products take them as they are. There k is filled up with zeros to whole tiles.
///
/// Blocks lie as [panel][k / inputs], each as weight_form.h says; k is a multiple of a block's inputs.
class PackedMatrix {
 public:
  static constexpr int64_t kPanel = kBlockOutputs;
  static constexpr int64_t kTileDepth = 32;  // steps of depth of a tile product

  PackedMatrix() = default;
  /// A matrix of zeros, in blocks of zero scales. n, k >= 0. Arithmetic::bf16 needs weights in bf16.
  PackedMatrix(int64_t n, int64_t k, WeightForm form, Arithmetic arithmetic = Arithmetic::exact);
  PackedMatrix(int64_t n, int64_t k, DType dtype, Arithmetic arithmetic = Arithmetic::exact)
      : PackedMatrix(n, k, form_of(dtype), arithmetic) {}

  [[nodiscard]] int64_t n() const { return n_; }
  [[nodiscard]] int64_t k() const { return k_; }
  [[nodiscard]] WeightForm form() const { return form_; }
  [[nodiscard]] Arithmetic arithmetic() const { return arithmetic_; }
  [[nodiscard]] int64_t panels() const { return (n_ + kPanel - 1) / kPanel; }
  /// Steps of depth that a panel takes in memory, padding included.
  [[nodiscard]] int64_t stored_k() const {
    return form_ == WeightForm::bf16 ? (k_ + kTileDepth - 1) / kTileDepth * kTileDepth : k_;
  }
  [[nodiscard]] int64_t panel_bytes() const {
    if (!is_blocks(form_)) return stored_k() * kPanel * size_of(dtype_of(form_));
    const BlockForm blocks = block_form(form_);
    return k_ / blocks.inputs * block_bytes(blocks);
  }
  /// Bytes allocated, padding included.
  [[nodiscard]] int64_t bytes() const { return panels() * panel_bytes(); }
  [[nodiscard]] const void* data() const { return data_.get(); }
  [[nodiscard]] void* data() { return data_.get(); }

  /// Stores rows row_begin .. row_begin+count-1 of w, given as rows [count, k] of float32 at distance row_stride,
  /// rounding to nearest even; of a matrix of plain floats. Ranges may come in any order and from several threads when
  /// they do not overlap.
  void pack_rows(int64_t row_begin, int64_t count, const float* rows, int64_t row_stride);
  /// Stores block `index` of a row of a matrix of blocks, which has not been stored before. Rows may come in any order
  /// and from several threads.
  void pack_block(int64_t row, int64_t index, const WeightBlock& block);
  /// Reads stored row `row` back into out [k].
  void unpack_row(int64_t row, float* out) const;

 private:
  /// Offset of w[row, column], in elements of plain floats.
  [[nodiscard]] int64_t element(int64_t row, int64_t column) const {
    const int64_t side_by_side = form_ == WeightForm::bf16 ? 2 : 1;
    const int64_t step = row / kPanel * stored_k() + column / side_by_side * side_by_side;
    return step * kPanel + row % kPanel * side_by_side + column % side_by_side;
  }

  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  int64_t n_ = 0, k_ = 0;
  WeightForm form_ = WeightForm::f32;
  Arithmetic arithmetic_ = Arithmetic::exact;
  std::unique_ptr<void, Free> data_;
};

/// Packs all of w [n, k] (rows contiguous).
[[nodiscard]] PackedMatrix pack_weights(const float* w, int64_t n, int64_t k, DType dtype,
                                        Arithmetic arithmetic = Arithmetic::exact);

struct MatmulArgs {
  const float* x = nullptr;  // [m, k], row i at x + i * x_stride
  int64_t m = 0;             // 0 is allowed: nothing is written
  int64_t x_stride = 0;      // >= k, in elements
  const PackedMatrix* w = nullptr;
  const float* bias = nullptr;  // [n] or null
  float* y = nullptr;           // [m, n], row i at y + i * y_stride; must not overlap x
  int64_t y_stride = 0;         // >= n, in elements
};

void matmul(const MatmulArgs& args);

}  // namespace kvarena::kernels
