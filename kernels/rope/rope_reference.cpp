#include <cmath>

#include "kernels/rope/rope_paths.h"

namespace kvarena::kernels {

void rotate_token_reference(const RotateArgs& args, int64_t token) {
  const int64_t half = args.rotary / 2;
  for (int64_t h = 0; h < args.heads; ++h) {
    float* x = args.x + token * args.token_stride + h * args.head_stride;
    for (int64_t i = 0; i < half; ++i) {
      const double cos = args.cos[token * half + i], sin = args.sin[token * half + i];
      const double a = x[i], b = x[i + half];
      x[i] = static_cast<float>(a * cos - b * sin);
      x[i + half] = static_cast<float>(b * cos + a * sin);
    }
  }
}

void rotate_cell_reference(DType dtype, int64_t half, void* cell, const float* cos, const float* sin, int64_t first,
                           int64_t end) {
  for (int64_t i = 0; i < half; ++i) {
    for (int64_t lane = first; lane < end; ++lane) {
      const int64_t low = i * kCell + lane, high = (i + half) * kCell + lane;
      const double a = load_element(cell, dtype, low), b = load_element(cell, dtype, high);
      const double c = cos[low], s = sin[low];
      store_element(cell, dtype, low, static_cast<float>(a * c - b * s));
      store_element(cell, dtype, high, static_cast<float>(b * c + a * s));
    }
  }
}

void from_polar_reference(float* lengths, float* angles, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double length = lengths[i], angle = angles[i];
    lengths[i] = static_cast<float>(length * std::cos(angle));
    angles[i] = static_cast<float>(length * std::sin(angle));
  }
}

}  // namespace kvarena::kernels
