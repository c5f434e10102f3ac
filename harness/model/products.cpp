#include "harness/model/products.h"

#include "kernels/matmul/gated_matmul.h"

namespace kvarena {
namespace {

/// inner [rows, size] = f(gate(in)) * up(in).
void gated(const DenseFeedForward& weights, const float* in, int64_t rows, float* inner, Activations& a) {
  const int64_t size = weights.down.in();
  const Projection& gate_up = weights.gate_up;
  if (gate_up.parts.size() == 1 && gate_up.bias.empty() && weights.limit == 0) {
    const kernels::Gate gate = weights.gelu ? kernels::Gate::gelu : kernels::Gate::silu;
    const kernels::MatmulArgs args{
        .x = in, .m = rows, .x_stride = a.hidden, .w = gate_up.parts.data(), .y = inner, .y_stride = size};
    if (kernels::gated_matmul(args, gate)) return;
  }
  float* gates = a.gates.at_least(rows * 2 * size);
  project(weights.gate_up, in, rows, a.hidden, gates);
  const kernels::GatedMulArgs args{.gate = gates,
                                   .up = gates + size,
                                   .out = inner,
                                   .rows = rows,
                                   .n = size,
                                   .gate_stride = 2 * size,
                                   .up_stride = 2 * size,
                                   .out_stride = size};
  if (weights.limit > 0) {
    kernels::clamped_mul(args, weights.limit);
  } else {
    weights.gelu ? kernels::gelu_mul(args) : kernels::silu_mul(args);
  }
}

}  // namespace

void project(const Projection& w, const float* x, int64_t rows, int64_t x_stride, float* y) {
  const int64_t out = w.out();
  int64_t first = 0;
  for (const kernels::PackedMatrix& part : w.parts) {
    kernels::matmul({.x = x,
                     .m = rows,
                     .x_stride = x_stride,
                     .w = &part,
                     .bias = w.bias.empty() ? nullptr : w.bias.data() + first,
                     .y = y + first,
                     .y_stride = out});
    first += part.n();
  }
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
  const int64_t size = weights.down.in();
  float* inner = a.inner.at_least(rows * size);
  gated(weights, in, rows, inner, a);
  project(weights.down, inner, rows, size, out);
}

void read_rows(const Projection& w, std::span<const int32_t> numbers, float* out) {
  for (int64_t row : numbers) {
    const kernels::PackedMatrix* part = w.parts.data();
    for (; row >= part->n(); ++part) row -= part->n();
    part->unpack_row(row, out);
    out += w.in();
  }
}

std::vector<float> unpacked(std::span<const kernels::PackedMatrix> parts) {
  const int64_t k = parts.front().k();
  std::vector<float> rows;
  for (const kernels::PackedMatrix& part : parts) {
    const auto before = static_cast<int64_t>(rows.size());
    rows.resize(static_cast<size_t>(before + part.n() * k));
    for (int64_t row = 0; row < part.n(); ++row) part.unpack_row(row, rows.data() + before + row * k);
  }
  return rows;
}

}  // namespace kvarena
