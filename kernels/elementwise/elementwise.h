#pragma once
// Row-wise pieces of a transformer layer. Every row's bits depend on that row alone. Rows at distance *_stride
// elements.

#include <cstdint>

#include "kernels/common/dtype.h"

namespace kvarena::kernels {

struct RmsNormArgs {
  const float* x = nullptr;       // [rows, n]
  const float* weight = nullptr;  // [n]
  float* y = nullptr;             // [rows, n]; may be x
  int64_t rows = 0, n = 0;
  int64_t x_stride = 0, y_stride = 0;
  float eps = 1e-5f;
};

/// y = x / sqrt(mean(x^2) + eps) * weight. The sum runs over 16 lanes (channel modulo 16, ascending, fused) and a fixed
/// tree.
void rms_norm(const RmsNormArgs& args);

/// out[r, i] = f(gate[r, i]) * up[r, i]. out may be gate or up.
struct GatedMulArgs {
  const float* gate = nullptr;  // [rows, n]
  const float* up = nullptr;    // [rows, n]
  float* out = nullptr;         // [rows, n]
  int64_t rows = 0, n = 0;
  int64_t gate_stride = 0, up_stride = 0, out_stride = 0;
};
/// f(z) = z / (1 + exp(-z)).
void silu_mul(const GatedMulArgs& args);
/// GELU in its form by tanh: f(z) = z / 2 * (1 + tanh(u)) = z / (1 + exp(-2 u)), u = sqrt(2 / pi) (z + 0.044715 z^3).
void gelu_mul(const GatedMulArgs& args);
/// f(z) = 1 / (1 + exp(-z)).
void sigmoid_mul(const GatedMulArgs& args);
/// gpt-oss: with g = min(gate, limit) and u = up within +-limit, out = g / (1 + exp(-1.702 g)) * (u + 1).
void clamped_mul(const GatedMulArgs& args, float limit);

/// x[r, i] = exp(scale x[r, i] - m) over the sum of these, m the row's largest scale x[r, i]. `sinks`, when not null,
/// holds a number of each row whose exponential is in the sum too.
void softmax(float* x, int64_t rows, int64_t n, int64_t stride, float scale, const float* sinks = nullptr);

/// x[r, i] *= factor for i in 0 .. n-1.
void scale_rows(float* x, int64_t rows, int64_t n, int64_t stride, float factor);

/// x[i] += y[i] for i in 0 .. count-1.
void add_into(float* x, const float* y, int64_t count);

/// to[i] = from[i] for i in 0 .. count-1, numbers of `dtype` made floats, exactly.
void widen(const void* from, DType dtype, int64_t count, float* to);

}  // namespace kvarena::kernels
