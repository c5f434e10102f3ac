#pragma once
// Products of a model's weights, wherever their rows are: here, or shared out among ranks. Bits are the same.

#include <cstdint>
#include <span>

#include "harness/model/activations.h"
#include "harness/model/weights.h"

namespace kvarena {

/// y [rows, out] = x * w^T + bias.
void project(const Projection& w, const float* x, int64_t rows, int64_t x_stride, float* y);

/// Rows of x in which every head's part stands `head_stride` behind that of the one before.
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

/// Stored rows by their numbers, out [numbers, in].
void read_rows(const Projection& w, std::span<const int32_t> numbers, float* out);
/// All of them: [out, in].
[[nodiscard]] std::vector<float> unpacked(const Projection& w);
/// [heads, n, k]
[[nodiscard]] std::vector<float> unpacked(const HeadProjections& w);

/// What is held here of an answer: a share, or all of it. y has `y_stride` floats between rows.
void project_held(const Projection& w, const float* x, int64_t rows, int64_t x_stride, float* y, int64_t y_stride);
/// in.x is that of the first head held; y [rows, held heads, n] with `y_stride` between rows.
void project_held(const HeadProjections& w, const HeadRows& in, float* y, int64_t y_stride);
/// The inner numbers silu(gate(in)) * up(in) of the held rows: [rows, held], with gates and ups in `work`.
void gate_held(const DenseFeedForward& weights, const float* in, int64_t rows, int64_t in_stride, float* inner,
               Workspace& work);

}  // namespace kvarena
