#include <vector>

#include "kernels/matmul/matmul_paths.h"

namespace kvarena::kernels {

void matmul_reference(const MatmulArgs& args, int64_t row) {
  const PackedMatrix& w = *args.w;
  std::vector<float> x(args.x + row * args.x_stride, args.x + row * args.x_stride + w.k());
  if (w.arithmetic() == Arithmetic::bf16) {
    for (float& each : x) each = bf16_to_f32(f32_to_bf16(each));
  }
  std::vector<float> weights(x.size());
  for (int64_t j = 0; j < w.n(); ++j) {
    w.unpack_row(j, weights.data());
    double sum = 0;
    for (size_t c = 0; c < x.size(); ++c) sum += static_cast<double>(x[c]) * weights[c];
    if (args.bias != nullptr) sum += args.bias[j];
    args.y[row * args.y_stride + j] = static_cast<float>(sum);
  }
}

}  // namespace kvarena::kernels
