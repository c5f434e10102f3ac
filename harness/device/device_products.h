#pragma once
// Products with a model's weights on a device.

#include <cstdint>

#include "harness/device/device_weights.h"

namespace kvarena::device {

/// y [rows, out] = x [rows, in] * w^T + bias, or added to what y holds; rows of y close together, those of x too where
/// `x_stride` is 0.
void project(const DeviceProjection& w, const float* x, int64_t rows, float* y, bool add, kernels::CudaStream stream,
             int64_t x_stride = 0);

}  // namespace kvarena::device
