#include "kernels/common/simd.h"
#include "kernels/elementwise/elementwise_paths.h"

namespace kvarena::kernels {
namespace {

void rms_norm_row(const float* x, const float* weight, float* y, int64_t n, float eps) {
  F32x16 squares = zero16();
  for (int64_t i = 0; i < n; i += kLanes) {
    const F32x16 v = load16(x + i, first_lanes(n - i));
    squares = fma(v, v, squares);
  }
  const float mean = sum_lanes(squares) / static_cast<float>(n);
  const F32x16 factor = set16(1.0f / __builtin_sqrtf(mean + eps));
  for (int64_t i = 0; i < n; i += kLanes) {
    const Mask16 lanes = first_lanes(n - i);
    store16(y + i, mul(mul(load16(x + i, lanes), factor), load16(weight + i, lanes)), lanes);
  }
}

void silu_mul_row(const float* gate, const float* up, float* out, int64_t n) {
  const F32x16 one = set16(1.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Mask16 lanes = first_lanes(n - i);
    const F32x16 z = load16(gate + i, lanes);
    const F32x16 silu = div(z, add(one, exp16(sub(zero16(), z))));
    store16(out + i, mul(silu, load16(up + i, lanes)), lanes);
  }
}

void gelu_mul_row(const float* gate, const float* up, float* out, int64_t n) {
  const F32x16 one = set16(1.0f);
  const F32x16 factor = set16(-1.5957691216f), cubic = set16(0.044715f);  // -2 sqrt(2 / pi)
  for (int64_t i = 0; i < n; i += kLanes) {
    const Mask16 lanes = first_lanes(n - i);
    const F32x16 z = load16(gate + i, lanes);
    const F32x16 bend = fma(mul(cubic, mul(z, z)), z, z);
    const F32x16 gelu = div(z, add(one, exp16(mul(factor, bend))));
    store16(out + i, mul(gelu, load16(up + i, lanes)), lanes);
  }
}

void sigmoid_mul_row(const float* gate, const float* up, float* out, int64_t n) {
  const F32x16 one = set16(1.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Mask16 lanes = first_lanes(n - i);
    const F32x16 rest = add(one, exp16(sub(zero16(), load16(gate + i, lanes))));
    store16(out + i, div(load16(up + i, lanes), rest), lanes);
  }
}

void add_row(float* x, const float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const Mask16 lanes = first_lanes(n - i);
    store16(x + i, add(load16(x + i, lanes), load16(y + i, lanes)), lanes);
  }
}

void softmax_row(float* x, int64_t n, float scale, const float* sink) {
  F32x16 most = set16(x[0]);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Mask16 lanes = first_lanes(n - i);
    most = select(lanes, max(most, load16(x + i, lanes)), most);
  }
  const float largest = max_lanes(most);
  const F32x16 top = set16(largest), factor = set16(scale);
  F32x16 sum = zero16();
  for (int64_t i = 0; i < n; i += kLanes) {
    const Mask16 lanes = first_lanes(n - i);
    const F32x16 power = exp16(mul(sub(load16(x + i, lanes), top), factor));
    store16(x + i, power, lanes);
    sum = add(sum, select(lanes, power, zero16()));
  }
  const float rest = sink != nullptr ? exp1(*sink - largest * scale) : 0.0f;
  const F32x16 inverse = set16(1.0f / (sum_lanes(sum) + rest));
  for (int64_t i = 0; i < n; i += kLanes) {
    const Mask16 lanes = first_lanes(n - i);
    store16(x + i, mul(load16(x + i, lanes), inverse), lanes);
  }
}

void widen_row(const void* from, DType dtype, int64_t count, float* to) {
  with_format(static_cast<int>(dtype), [&](auto format) {
    const auto* const numbers = static_cast<const typename decltype(format)::Stored*>(from);
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) store16(to + i, load16(format, numbers + i));
    for (; i < count; ++i) to[i] = load_element(from, dtype, i);
  });
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const ElementwiseTable elementwise_table;
const ElementwiseTable elementwise_table = {rms_norm_row, silu_mul_row, gelu_mul_row, sigmoid_mul_row,
                                            add_row,      softmax_row,  widen_row};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
