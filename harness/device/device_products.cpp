#include "harness/device/device_products.h"

#include "harness/device/ranks/device_driver.h"
#include "kernels/elementwise/elementwise_cuda.h"

namespace kvarena::device {

void project(const DeviceProjection& w, const float* x, int64_t rows, float* y, bool add, kernels::CudaStream stream) {
  if (w.elsewhere.driver != nullptr) return w.elsewhere.driver->project(w, x, rows, y, add, stream);
  project_held(w, x, rows, y, {.x = w.matrix.k(), .y = w.matrix.n()}, add, stream);
}

void project_held(const DeviceProjection& w, const float* x, int64_t rows, float* y, const Strides& strides, bool add,
                  kernels::CudaStream stream) {
  kernels::matmul_cuda({.x = x,
                        .m = rows,
                        .x_stride = strides.x,
                        .w = &w.matrix,
                        .bias = w.bias.data(),
                        .y = y,
                        .y_stride = strides.y,
                        .add = add},
                       stream);
}

void gate_held(const DeviceDense& weights, const float* in, int64_t rows, float* work, float* inner, int64_t stride,
               kernels::CudaStream stream) {
  const int64_t held = weights.gate_up.held.count();
  project_held(weights.gate_up, in, rows, work, {.x = weights.gate_up.matrix.k(), .y = 2 * held}, /*add=*/false,
               stream);
  kernels::silu_mul_cuda({.gate = work,
                          .up = work + held,
                          .out = inner,
                          .rows = rows,
                          .n = held,
                          .gate_stride = 2 * held,
                          .up_stride = 2 * held,
                          .out_stride = stride},
                         stream);
}

}  // namespace kvarena::device
