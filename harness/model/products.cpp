#include "harness/model/products.h"

#include <numeric>

#include "harness/model/ranks/driver.h"

namespace kvarena {
namespace {

std::vector<int32_t> all_rows(int64_t n) {
  std::vector<int32_t> numbers(static_cast<size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace

void project_held(const Projection& w, const float* x, int64_t rows, int64_t x_stride, float* y, int64_t y_stride) {
  kernels::matmul({.x = x,
                   .m = rows,
                   .x_stride = x_stride,
                   .w = &w.matrix,
                   .bias = w.bias.empty() ? nullptr : w.bias.data(),
                   .y = y,
                   .y_stride = y_stride});
}

void project_held(const HeadProjections& w, const HeadRows& in, float* y, int64_t y_stride) {
  for (size_t head = 0; head < w.matrices.size(); ++head) {
    const auto i = static_cast<int64_t>(head);
    kernels::matmul({.x = in.x + i * in.head_stride,
                     .m = in.rows,
                     .x_stride = in.stride,
                     .w = &w.matrices[head],
                     .y = y + i * w.n,
                     .y_stride = y_stride});
  }
}

void gate_held(const DenseFeedForward& weights, const float* in, int64_t rows, int64_t in_stride, float* inner,
               Workspace& work) {
  const int64_t held = weights.gate_up.held.count();
  float* gates = work.at_least(rows * 2 * held);
  project_held(weights.gate_up, in, rows, in_stride, gates, 2 * held);
  kernels::silu_mul({.gate = gates,
                     .up = gates + held,
                     .out = inner,
                     .rows = rows,
                     .n = held,
                     .gate_stride = 2 * held,
                     .up_stride = 2 * held,
                     .out_stride = held});
}

void project(const Projection& w, const float* x, int64_t rows, int64_t x_stride, float* y) {
  if (w.elsewhere.driver != nullptr) return w.elsewhere.driver->project(w, x, rows, x_stride, y);
  project_held(w, x, rows, x_stride, y, w.out);
}

void project_heads(const HeadProjections& w, const HeadRows& in, float* y) {
  if (w.elsewhere.driver != nullptr) return w.elsewhere.driver->project_heads(w, in, y);
  project_held(w, in, y, w.heads * w.n);
}

void feed_forward(const DenseFeedForward& weights, const float* in, int64_t rows, float* out, Activations& a) {
  if (weights.elsewhere.driver != nullptr) return weights.elsewhere.driver->feed_forward(weights, in, rows, out);
  const int64_t size = weights.down.matrix.k();
  float* inner = a.inner.at_least(rows * size);
  gate_held(weights, in, rows, a.hidden, inner, a.gates);
  project(weights.down, inner, rows, size, out);
}

void read_rows(const Projection& w, std::span<const int32_t> numbers, float* out) {
  if (w.elsewhere.driver != nullptr) return w.elsewhere.driver->read_rows(w.elsewhere.part, numbers, out);
  for (const int32_t row : numbers) {
    w.matrix.unpack_row(row, out);
    out += w.matrix.k();
  }
}

std::vector<float> unpacked(const Projection& w) {
  std::vector<float> rows(static_cast<size_t>(w.out * w.matrix.k()));
  read_rows(w, all_rows(w.out), rows.data());
  return rows;
}

std::vector<float> unpacked(const HeadProjections& w) {
  std::vector<float> rows(static_cast<size_t>(w.heads * w.n * w.k));
  if (w.elsewhere.driver != nullptr) {
    w.elsewhere.driver->read_rows(w.elsewhere.part, all_rows(w.heads * w.n), rows.data());
    return rows;
  }
  float* out = rows.data();
  for (const kernels::PackedMatrix& head : w.matrices) {
    for (int64_t row = 0; row < w.n; ++row, out += w.k) head.unpack_row(row, out);
  }
  return rows;
}

}  // namespace kvarena
