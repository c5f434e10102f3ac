#pragma once
// elementwise.h on a CUDA device: all pointers lie there; everything is queued on `stream`. A row's bits depend on that
// row alone (and, but for the softmax, differ from the host's within rounding: the sum of rms_norm runs over 256 lanes
// and a fixed tree).

#include "kernels/cuda/device.h"
#include "kernels/elementwise/elementwise.h"

namespace kvarena::kernels {

void rms_norm_cuda(const RmsNormArgs& args, CudaStream stream);
/// rms_norm() of every head of some tokens, in place.
struct HeadNorm {
  float* x = nullptr;             // [tokens, heads, n]
  const float* weight = nullptr;  // [n]
  int64_t tokens = 0, heads = 0, n = 0;
  int64_t token_stride = 0, head_stride = 0;  // in elements
  float eps = 1e-5f;
};
void head_norm_cuda(const HeadNorm& args, CudaStream stream);

void silu_mul_cuda(const GatedMulArgs& args, CudaStream stream);
void add_into_cuda(float* x, const float* y, int64_t count, CudaStream stream);

/// softmax() without sinks, with the bits that the host's instruction sets share.
void softmax_cuda(float* x, int64_t rows, int64_t n, int64_t stride, float scale, CudaStream stream);
/// The first row of each of `groups` groups of `rows` neighbouring rows becomes their maximum, element by element.
void max_rows_cuda(float* x, int64_t groups, int64_t rows, int64_t n, int64_t stride, CudaStream stream);

/// A row among others, and what a sum takes of it: a token that visits an expert.
struct WeightedRow {
  int32_t row = 0;
  float weight = 0;
};
/// to[i] = x[rows[i].row], rows of n elements: to [count, n], those of x at distance x_stride.
void gather_rows_cuda(const float* x, int64_t x_stride, const WeightedRow* rows, int64_t count, int64_t n, float* to,
                      CudaStream stream);
/// to[rows[i].row] += rows[i].weight * x[i], rows of n elements: x [count, n], those of `to` at distance to_stride. No
/// row is listed twice.
void add_rows_cuda(const float* x, const WeightedRow* rows, int64_t count, int64_t n, float* to, int64_t to_stride,
                   CudaStream stream);

/// to[r, place[c]] = factor * x[r, c]: the channels of some rows in another order, or among others.
struct ChannelMove {
  const float* x = nullptr;        // [rows, n]
  float* to = nullptr;             // [rows, ...]; must not overlap x
  const int32_t* place = nullptr;  // [n], no place twice
  int64_t rows = 0, n = 0;
  int64_t x_stride = 0, to_stride = 0;  // in elements
  float factor = 1;
};
void move_channels_cuda(const ChannelMove& args, CudaStream stream);

}  // namespace kvarena::kernels
