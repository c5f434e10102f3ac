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

/// Cosine and sine: the angle less the nearest multiple of pi / 2, whose three parts have few bits each so that
/// products with small numbers are exact; polynomials on [-pi / 4, pi / 4] (Cephes, sinf.c); and by the quarter that
/// the angle is in, which of both is which, and their signs.
KVARENA_INLINE void cos_sin(F32x16 angle, F32x16& cos, F32x16& sin) {
  const F32x16 n = round16(mul(angle, set16(0.636619772f)));
  F32x16 r = fma(n, set16(-1.5703125f), angle);
  r = fma(n, set16(-4.837512969970703125e-4f), r);
  r = fma(n, set16(-7.54978995489188216e-8f), r);
  const F32x16 square = mul(r, r);
  F32x16 s = fma(square, set16(-1.9515295891e-4f), set16(8.3321608736e-3f));
  s = fma(s, square, set16(-1.6666654611e-1f));
  s = fma(mul(s, square), r, r);
  F32x16 c = fma(square, set16(2.443315711809948e-5f), set16(-1.388731625493765e-3f));
  c = fma(c, square, set16(4.166664568298827e-2f));
  c = fma(mul(c, square), square, fma(square, set16(-0.5f), set16(1.0f)));
  const U32x16 quarter = integers(n);
  const Mask16 odd = less(set16(0.5f), numbers(masked(quarter, 1)));
  const auto with_sign = [](F32x16 x, U32x16 of) {  // minus where bit 1 is set
    return bits_of(differing(bits_of(x), shift_left(masked(of, 2), 30)));
  };
  cos = with_sign(select(odd, s, c), add(quarter, set_u32(1)));
  sin = with_sign(select(odd, c, s), quarter);
}

void to_coordinates(float* lengths, float* angles, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const Mask16 lanes = first_lanes(n - i);
    const F32x16 length = load16(lengths + i, lanes);
    F32x16 cos, sin;
    cos_sin(load16(angles + i, lanes), cos, sin);
    store16(lengths + i, mul(length, cos), lanes);
    store16(angles + i, mul(length, sin), lanes);
  }
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const RopeTable rope_table;
const RopeTable rope_table = {rotate_token, rotate_cell, to_coordinates};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
