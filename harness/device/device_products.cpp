#include "harness/device/device_products.h"

namespace kvarena::device {

void project(const DeviceProjection& w, const float* x, int64_t rows, float* y, bool add, kernels::CudaStream stream,
             int64_t x_stride) {
  kernels::matmul_cuda({.x = x,
                        .m = rows,
                        .x_stride = x_stride > 0 ? x_stride : w.matrix.k(),
                        .w = &w.matrix,
                        .bias = w.bias.data(),
                        .y = y,
                        .y_stride = w.matrix.n(),
                        .add = add},
                       stream);
}

}  // namespace kvarena::device
