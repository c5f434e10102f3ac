#include "harness/model/products.h"

namespace kvarena {

void project(const Projection& w, const float* x, int64_t rows, int64_t x_stride, float* y) {
  kernels::matmul({.x = x,
                   .m = rows,
                   .x_stride = x_stride,
                   .w = &w.matrix,
                   .bias = w.bias.empty() ? nullptr : w.bias.data(),
                   .y = y,
                   .y_stride = w.matrix.n()});
}

void project_heads(const HeadProjections& w, const HeadRows& in, float* y) {
  const int64_t n = w.front().n();
  for (size_t head = 0; head < w.size(); ++head) {
    const auto i = static_cast<int64_t>(head);
    kernels::matmul({.x = in.x + i * in.head_stride,
                     .m = in.rows,
                     .x_stride = in.stride,
                     .w = &w[head],
                     .y = y + i * n,
                     .y_stride = std::ssize(w) * n});
  }
}

void feed_forward(const DenseFeedForward& weights, const float* in, int64_t rows, float* out, Activations& a) {
  const int64_t size = weights.down.matrix.k();
  float* gates = a.gates.at_least(rows * 2 * size);
  float* inner = a.inner.at_least(rows * size);
  project(weights.gate_up, in, rows, a.hidden, gates);
  const kernels::GatedMulArgs gated{.gate = gates,
                                    .up = gates + size,
                                    .out = inner,
                                    .rows = rows,
                                    .n = size,
                                    .gate_stride = 2 * size,
                                    .up_stride = 2 * size,
                                    .out_stride = size};
  if (weights.limit > 0) {
    kernels::clamped_mul(gated, weights.limit);
  } else {
    weights.gelu ? kernels::gelu_mul(gated) : kernels::silu_mul(gated);
  }
  project(weights.down, inner, rows, size, out);
}

void read_rows(const Projection& w, std::span<const int32_t> numbers, float* out) {
  for (const int32_t row : numbers) {
    w.matrix.unpack_row(row, out);
    out += w.matrix.k();
  }
}

std::vector<float> unpacked(const kernels::PackedMatrix& w) {
  std::vector<float> rows(static_cast<size_t>(w.n() * w.k()));
  for (int64_t row = 0; row < w.n(); ++row) w.unpack_row(row, rows.data() + row * w.k());
  return rows;
}

}  // namespace kvarena
