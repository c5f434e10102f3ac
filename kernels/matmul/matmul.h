#pragma once
// y = x * w^T (+ bias) with weights that were packed once.
//
// Reduction order (a promise): every y[i, j] starts at 0 and takes x[i, c] * w[j, c] for c = 0 .. k-1 in ascending
// order, each by one fused multiply-add in float32; the bias is added last. Stored weights are widened to float32
// exactly. So a row of y has the same bits whatever other rows, columns or threads are in the call, on every SIMD path.
// (The reference path accumulates in double and rounds once.)
//
// Cost: 2*m*n*k flops; n*k*size bytes of weights for every 12 rows or fewer (read once), once per 192 rows above that.

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "kernels/common/dtype.h"

namespace kvarena::kernels {

/// Weights [n, k] in panels of kPanel output columns: [panel][k][kPanel], so that lanes run over output columns and one
/// row of x streams every panel front to back. Columns past n are zero. 64-byte aligned.
class PackedMatrix {
 public:
  static constexpr int64_t kPanel = 32;

  PackedMatrix() = default;
  /// Zeros. n, k >= 0.
  PackedMatrix(int64_t n, int64_t k, DType dtype);

  [[nodiscard]] int64_t n() const { return n_; }
  [[nodiscard]] int64_t k() const { return k_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] int64_t panels() const { return (n_ + kPanel - 1) / kPanel; }
  /// Bytes allocated, padding included.
  [[nodiscard]] int64_t bytes() const { return panels() * kPanel * k_ * size_of(dtype_); }
  [[nodiscard]] const void* data() const { return data_.get(); }
  [[nodiscard]] void* data() { return data_.get(); }

  /// Stores rows row_begin .. row_begin+count-1 of w, given as rows [count, k] of float32 at distance row_stride,
  /// rounding to nearest even. Ranges may come in any order and from several threads when they do not overlap.
  void pack_rows(int64_t row_begin, int64_t count, const float* rows, int64_t row_stride);
  /// Reads stored row `row` back into out [k].
  void unpack_row(int64_t row, float* out) const;

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  int64_t n_ = 0, k_ = 0;
  DType dtype_ = DType::f32;
  std::unique_ptr<void, Free> data_;
};

/// Packs all of w [n, k] (rows contiguous).
[[nodiscard]] PackedMatrix pack_weights(const float* w, int64_t n, int64_t k, DType dtype);

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
