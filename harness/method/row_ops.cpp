#include "harness/method/row_ops.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/rope/rope.h"

namespace kvarena {

void rotate_rows(float* rows, int64_t heads, int64_t head_dim, std::span<const double> inverse, double magnitude,
                 std::span<const int32_t> positions) {
  const auto count = static_cast<int64_t>(positions.size());
  const auto half = static_cast<int64_t>(inverse.size());
  std::vector<float> cos(static_cast<size_t>(count * half));
  std::vector<float> sin(cos.size());
  kernels::rotation_tables(positions.data(), count, inverse.data(), half, static_cast<float>(magnitude), cos.data(),
                           sin.data());
  kernels::rotate({.x = rows,
                   .tokens = count,
                   .heads = heads,
                   .head_dim = head_dim,
                   .token_stride = heads * head_dim,
                   .head_stride = head_dim,
                   .rotary = 2 * half,
                   .cos = cos.data(),
                   .sin = sin.data()});
}

std::vector<float> normed_rows(const float* rows, int64_t count, const std::vector<float>& weight, float eps) {
  const auto n = static_cast<int64_t>(weight.size());
  std::vector<float> y(static_cast<size_t>(count * n));
  kernels::rms_norm({.x = rows,
                     .weight = weight.data(),
                     .y = y.data(),
                     .rows = count,
                     .n = n,
                     .x_stride = n,
                     .y_stride = n,
                     .eps = eps});
  return y;
}

}  // namespace kvarena
