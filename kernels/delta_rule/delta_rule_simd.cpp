#include "kernels/common/simd.h"
#include "kernels/delta_rule/delta_rule_paths.h"

namespace kvarena::kernels {
namespace {

void convolve(const float* const* rows, const float* weight, float* out, int64_t taps, int64_t channels) {
  for (int64_t c = 0; c < channels; c += kLanes) {
    const Mask16 lanes = first_lanes(channels - c);
    F32x16 sum = zero16();
    for (int64_t j = 0; j < taps; ++j) {
      sum = fma(load16(weight + j * channels + c, lanes), load16(rows[j] + c, lanes), sum);
    }
    store16(out + c, sum, lanes);
  }
}

/// One head's token.
struct Step {
  const float* q;
  const float* k;
  const float* v;
  float decay, beta;
  float* state;
  float* out;
  int64_t k_dim, v_dim;
};

/// N vectors of columns from `c` on, so that their chains of sums overlap; `lanes` of each.
template <int N>
KVARENA_INLINE void step_columns(const Step& s, int64_t c, Mask16 lanes) {
  F32x16 seen[N], change[N], sum[N];
  for (int n = 0; n < N; ++n) seen[n] = sum[n] = zero16();
  const F32x16 decay = set16(s.decay);
  for (int64_t i = 0; i < s.k_dim; ++i) {
    float* row = s.state + i * s.v_dim + c;
    const F32x16 k = set16(s.k[i]);
    for (int n = 0; n < N; ++n) {
      const F32x16 held = mul(load16(row + n * kLanes, lanes), decay);
      store16(row + n * kLanes, held, lanes);
      seen[n] = fma(held, k, seen[n]);
    }
  }
  for (int n = 0; n < N; ++n) {
    change[n] = mul(sub(load16(s.v + c + n * kLanes, lanes), seen[n]), set16(s.beta));
  }
  for (int64_t i = 0; i < s.k_dim; ++i) {
    float* row = s.state + i * s.v_dim + c;
    const F32x16 k = set16(s.k[i]), q = set16(s.q[i]);
    for (int n = 0; n < N; ++n) {
      const F32x16 held = fma(k, change[n], load16(row + n * kLanes, lanes));
      store16(row + n * kLanes, held, lanes);
      sum[n] = fma(held, q, sum[n]);
    }
  }
  if (s.out == nullptr) return;
  for (int n = 0; n < N; ++n) store16(s.out + c + n * kLanes, sum[n], lanes);
}

void step(const float* q, const float* k, const float* v, float decay, float beta, float* state, float* out,
          int64_t k_dim, int64_t v_dim) {
  const Step s{q, k, v, decay, beta, state, out, k_dim, v_dim};
  constexpr int kWide = 4;
  const Mask16 all = first_lanes(kLanes);
  int64_t c = 0;
  for (; c + kWide * kLanes <= v_dim; c += kWide * kLanes) step_columns<kWide>(s, c, all);
  for (; c < v_dim; c += kLanes) step_columns<1>(s, c, first_lanes(v_dim - c));
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const DeltaRuleTable delta_rule_table;
const DeltaRuleTable delta_rule_table = {convolve, step};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
