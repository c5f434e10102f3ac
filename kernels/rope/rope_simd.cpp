#include "kernels/common/simd.h"
#include "kernels/rope/rope_paths.h"

namespace kvarena::kernels {
namespace {

KVARENA_INLINE void turn(F32x16& a, F32x16& b, F32x16 cos, F32x16 sin) {
  const F32x16 a0 = a;
  a = fma(sub(zero16(), b), sin, mul(a0, cos));
  b = fma(a0, sin, mul(b, cos));
}

void rotate_token(const RotateArgs& args, int64_t token) {
  const int64_t half = args.rotary / 2;
  const float* cos = args.cos + token * half;
  const float* sin = args.sin + token * half;
  for (int64_t h = 0; h < args.heads; ++h) {
    float* x = args.x + token * args.token_stride + h * args.head_stride;
    for (int64_t i = 0; i < half; i += kLanes) {
      const Mask16 lanes = first_lanes(half - i);
      F32x16 a = load16(x + i, lanes), b = load16(x + half + i, lanes);
      turn(a, b, load16(cos + i, lanes), load16(sin + i, lanes));
      store16(x + i, a, lanes);
      store16(x + half + i, b, lanes);
    }
  }
}

template <class T>
void rotate_format(int64_t half, void* cell, const float* cos, const float* sin, Mask16 lanes) {
  auto* stored = static_cast<typename T::Stored*>(cell);
  for (int64_t i = 0; i < half; ++i) {
    auto* low = stored + i * kLanes;
    auto* high = stored + (i + half) * kLanes;
    const F32x16 a0 = load16(T{}, low), b0 = load16(T{}, high);
    F32x16 a = a0, b = b0;
    turn(a, b, load16(cos + i * kLanes), load16(sin + i * kLanes));
    store16(T{}, low, select(lanes, a, a0));  // storing what was loaded changes no bits
    store16(T{}, high, select(lanes, b, b0));
  }
}

void rotate_cell(DType dtype, int64_t half, void* cell, const float* cos, const float* sin, int64_t first,
                 int64_t end) {
  const Mask16 lanes = and_not(first_lanes(end), first_lanes(first));
  with_format(static_cast<int>(dtype),
              [&](auto format) { rotate_format<decltype(format)>(half, cell, cos, sin, lanes); });
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const RopeTable rope_table;
const RopeTable rope_table = {rotate_token, rotate_cell};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
