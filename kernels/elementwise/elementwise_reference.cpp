#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/elementwise/elementwise_paths.h"

namespace kvarena::kernels {
namespace {

void rms_norm_row(const float* x, const float* weight, float* y, int64_t n, float eps) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  const double factor = 1 / std::sqrt(sum / static_cast<double>(n) + eps);
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i] * factor * weight[i]);
}

void silu_mul_row(const float* gate, const float* up, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double z = gate[i];
    out[i] = static_cast<float>(z / (1 + std::exp(-z)) * up[i]);
  }
}

void gelu_mul_row(const float* gate, const float* up, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double z = gate[i];
    const double u = std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z);
    out[i] = static_cast<float>(z / 2 * (1 + std::tanh(u)) * up[i]);
  }
}

void sigmoid_mul_row(const float* gate, const float* up, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(up[i] / (1 + std::exp(-static_cast<double>(gate[i]))));
}

void add_row(float* x, const float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] += y[i];
}

void softmax_row(float* x, int64_t n, float scale, const float* sink) {
  double largest = x[0], sum = 0;
  for (int64_t i = 1; i < n; ++i) largest = std::max(largest, double{x[i]});
  for (int64_t i = 0; i < n; ++i) sum += std::exp((x[i] - largest) * scale);
  if (sink != nullptr) sum += std::exp(*sink - largest * scale);
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(std::exp((x[i] - largest) * scale) / sum);
}

void widen_row(const void* from, DType dtype, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = load_element(from, dtype, i);
}

}  // namespace

const ElementwiseTable elementwise_reference = {rms_norm_row, silu_mul_row, gelu_mul_row, sigmoid_mul_row,
                                                add_row,      softmax_row,  widen_row};

}  // namespace kvarena::kernels
