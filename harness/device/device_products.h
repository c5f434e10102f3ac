#pragma once
// Products of a model's weights on a device, wherever their rows are: harness/model/products.h there.

#include <cstdint>

#include "harness/device/device_weights.h"

namespace kvarena::device {

/// y [rows, out] = x [rows, in] * w^T + bias, or added to what y holds; rows close together.
void project(const DeviceProjection& w, const float* x, int64_t rows, float* y, bool add, kernels::CudaStream stream);

/// Rows of inputs or outputs, at distances of their own.
struct Strides {
  int64_t x = 0, y = 0;
};
/// The outputs that are held here: y [rows, held].
void project_held(const DeviceProjection& w, const float* x, int64_t rows, float* y, const Strides& strides, bool add,
                  kernels::CudaStream stream);

/// The inner numbers silu(gate(in)) * up(in) that are held here: from `in` [rows, hidden_size] to `inner` [rows, held]
/// with `stride` between rows; `work` [rows, 2 * held] may be the same place.
void gate_held(const DeviceDense& weights, const float* in, int64_t rows, float* work, float* inner, int64_t stride,
               kernels::CudaStream stream);

}  // namespace kvarena::device
