#pragma once
// Products with a model's weights.

#include <cstdint>
#include <span>

#include "harness/model/activations.h"
#include "harness/model/weights.h"

namespace kvarena {

/// y [rows, out] = x * w^T + bias.
void project(const Projection& w, const float* x, int64_t rows, int64_t x_stride, float* y);

/// Rows of x; each head's part begins `head_stride` floats after that of the head before.
struct HeadRows {
  const float* x = nullptr;
  int64_t rows = 0;
  int64_t stride = 0;  // between rows
  int64_t head_stride = 0;
};

/// y [rows, heads, n]: each head by its own matrix.
void project_heads(const HeadProjections& w, const HeadRows& in, float* y);

/// down(f(gate(in)) * up(in)) with f SiLU or GELU, or with a clamped gate: in and out [rows, hidden_size].
void feed_forward(const DenseFeedForward& weights, const float* in, int64_t rows, float* out, Activations& a);

/// Reads stored rows by their numbers into out [numbers, in].
void read_rows(const Projection& w, std::span<const int32_t> numbers, float* out);
/// All stored rows, [n, k].
[[nodiscard]] std::vector<float> unpacked(std::span<const kernels::PackedMatrix> parts);

}  // namespace kvarena
