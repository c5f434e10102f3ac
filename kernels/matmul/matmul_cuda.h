#pragma once
// matmul.h on a CUDA device: y = x * w^T (+ bias) (+ what is there), with weights stored for tensor cores. All pointers
// lie on the device; everything is queued on `stream`.
//
// 16-bit weights are multiplied by tensor cores: x enters as the sum of two numbers of the weights' format, which keeps
// 16 (bf16) or 21 (f16) bits of it (with f16 weights x must lie in that format's range), and products are added in
// float32. f32 weights are multiplied in floats.
//
// Order of the arithmetic, a promise as in matmul.h: y[i, j] = 0 + slice 0 + slice 1 + ... + bias, then added to what
// was there; a slice is kSliceColumns columns of x and w, whatever m is. Within one: by 16 columns ascending, the high
// parts' products before the low ones' (tensor cores), or four chains of fused multiply-adds ascending, that of columns
// c with c / 4 % 4 alike, and a fixed tree (floats). So a row of y has the same bits whatever other rows are in the
// call: one row streams weights through all of the device, thousands share them in tiles, and both agree.
//
// Cost: n*k*size bytes of weights for every 32 rows or fewer, for every 128 from kTiledRows rows on.

#include "kernels/common/dtype.h"
#include "kernels/cuda/device.h"

namespace kvarena::kernels {

inline constexpr int64_t kSliceColumns = 256;
/// From so many rows on, a block has a tile of rows and columns.
inline constexpr int64_t kTiledRows = 512;

/// Weights [n, k] as fragments of tensor cores: tiles of 16 x 16, [n / 16][k / 16][lane][8], so that a warp reads 512
/// bytes in a row (f32: 1024). A lane has rows lane / 4 and that + 8, columns 4 * (lane % 4) .. +3.
class DeviceMatrix {
 public:
  static constexpr int64_t kTile = 16;

  DeviceMatrix() = default;
  /// Allocates the matrix, not cleared. n >= 0, k > 0.
  DeviceMatrix(int64_t n, int64_t k, DType dtype);

  [[nodiscard]] int64_t n() const { return n_; }
  [[nodiscard]] int64_t k() const { return k_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  /// Bytes allocated, padding included.
  [[nodiscard]] int64_t bytes() const { return data_.bytes(); }
  [[nodiscard]] const void* data() const { return data_.data(); }

  /// Stores rows row_begin .. row_begin+count-1, given as rows [count, k] of float32 on the device at distance
  /// row_stride, rounding to nearest even.
  void store_rows(int64_t row_begin, int64_t count, const float* rows, int64_t row_stride, CudaStream stream);
  /// x[i] = row index[i], rows [count, k] at distance x_stride: embeddings of tokens.
  void gather_rows(const int32_t* index, int64_t count, float* x, int64_t x_stride, CudaStream stream) const;

 private:
  int64_t n_ = 0, k_ = 0;
  DType dtype_ = DType::f32;
  CudaBuffer data_;
};

struct DeviceMatmul {
  const float* x = nullptr;  // [m, k], row i at x + i * x_stride
  int64_t m = 0;
  int64_t x_stride = 0;  // >= k, in elements
  const DeviceMatrix* w = nullptr;
  const float* bias = nullptr;  // [n] or null
  float* y = nullptr;           // [m, n], row i at y + i * y_stride; must not overlap x
  int64_t y_stride = 0;         // >= n, in elements
  bool add = false;             // to what y holds, once the rest is summed: a residual stream
};

void matmul_cuda(const DeviceMatmul& args, CudaStream stream);

}  // namespace kvarena::kernels
