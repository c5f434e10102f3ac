#pragma once
// Products with a model's weights, whose rows are all here or divided among ranks. Bits are the same.

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

/// down(silu(gate(in)) * up(in)): in and out [rows, hidden_size].
void feed_forward(const DenseFeedForward& weights, const float* in, int64_t rows, float* out, Activations& a);

/// Reads stored rows by their numbers into out [numbers, in].
void read_rows(const Projection& w, std::span<const int32_t> numbers, float* out);
/// All stored rows, [out, in].
[[nodiscard]] std::vector<float> unpacked(const Projection& w);
/// All heads' matrices, [heads, n, k].
[[nodiscard]] std::vector<float> unpacked(const HeadProjections& w);

/// project() of the rows of w held here alone. y has `y_stride` floats between rows.
void project_held(const Projection& w, const float* x, int64_t rows, int64_t x_stride, float* y, int64_t y_stride);
/// project_heads() of the heads held here alone. in.x is that of the first of them; y [rows, held heads, n] with
/// `y_stride` floats between rows.
void project_held(const HeadProjections& w, const HeadRows& in, float* y, int64_t y_stride);
/// silu(gate(in)) * up(in) of the rows held here, [rows, held]; `work` takes gates and ups.
void gate_held(const DenseFeedForward& weights, const float* in, int64_t rows, int64_t in_stride, float* inner,
               Workspace& work);

}  // namespace kvarena
