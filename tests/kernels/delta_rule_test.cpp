#include "kernels/delta_rule/delta_rule.h"

#include "tests/kernels/support.h"

namespace kvarena::kernels {
namespace {

using test::expect_close;
using test::expect_same_bits;
using test::normal;

struct Shape {
  int64_t k_heads, v_heads, k_dim, v_dim;
};
constexpr Shape kShapes[] = {{1, 1, 1, 1}, {2, 4, 16, 16}, {2, 2, 24, 37}, {1, 3, 128, 128}, {4, 8, 32, 80}};

/// Inputs of some tokens; rows hold queries, keys and values side by side.
struct Inputs {
  Inputs(const Shape& shape, int64_t token_count)
      : tokens(token_count),
        width((2 * shape.k_heads * shape.k_dim) + shape.v_heads * shape.v_dim),
        qkv(normal(tokens * width, 1, 0.3f)),
        gates(normal(2 * tokens * shape.v_heads, 2)),
        state(normal(shape.v_heads * shape.k_dim * shape.v_dim, 3)) {
    for (float& gate : gates) gate = 1 / (1 + std::exp(-gate));
  }
  int64_t tokens, width;
  std::vector<float> qkv, gates, state;  // gates: [tokens, v_heads] decays, then betas
};

/// Outputs of all tokens, `chunk` at a time, then the state.
std::vector<float> run(const Shape& shape, const Inputs& in, int64_t chunk) {
  std::vector<float> state = in.state, out(static_cast<size_t>(in.tokens * shape.v_heads * shape.v_dim));
  for (int64_t t = 0; t < in.tokens; t += chunk) {
    const float* row = in.qkv.data() + t * in.width;
    delta_rule({.q = row,
                .k = row + shape.k_heads * shape.k_dim,
                .v = row + 2 * shape.k_heads * shape.k_dim,
                .decay = in.gates.data() + t * shape.v_heads,
                .beta = in.gates.data() + (in.tokens + t) * shape.v_heads,
                .state = state.data(),
                .out = out.data() + t * shape.v_heads * shape.v_dim,
                .tokens = std::min(chunk, in.tokens - t),
                .k_heads = shape.k_heads,
                .v_heads = shape.v_heads,
                .k_dim = shape.k_dim,
                .v_dim = shape.v_dim,
                .qkv_stride = in.width,
                .gate_stride = shape.v_heads,
                .out_stride = shape.v_heads * shape.v_dim});
  }
  out.insert(out.end(), state.begin(), state.end());
  return out;
}

/// The rule in double, head by head.
std::vector<float> defined(const Shape& shape, const Inputs& in) {
  const int64_t kd = shape.k_dim, vd = shape.v_dim, keys = shape.k_heads * kd;
  std::vector<double> state(in.state.begin(), in.state.end());
  std::vector<float> out(static_cast<size_t>(in.tokens * shape.v_heads * vd));
  for (int64_t t = 0; t < in.tokens; ++t) {
    for (int64_t h = 0; h < shape.v_heads; ++h) {
      const float* q = in.qkv.data() + t * in.width + h * shape.k_heads / shape.v_heads * kd;
      const float* v = in.qkv.data() + t * in.width + 2 * keys + h * vd;
      const double decay = in.gates[t * shape.v_heads + h], beta = in.gates[(in.tokens + t) * shape.v_heads + h];
      double* s = state.data() + h * kd * vd;
      for (int64_t c = 0; c < vd; ++c) {
        double seen = 0, sum = 0;
        for (int64_t i = 0; i < kd; ++i) seen += (s[i * vd + c] *= decay) * q[keys + i];
        for (int64_t i = 0; i < kd; ++i) {
          s[i * vd + c] += q[keys + i] * (v[c] - seen) * beta;
          sum += s[i * vd + c] * q[i];
        }
        out[(t * shape.v_heads + h) * vd + c] = static_cast<float>(sum);
      }
    }
  }
  for (const double x : state) out.push_back(static_cast<float>(x));
  return out;
}

TEST(DeltaRule, HasTheValuesOfItsDefinition) {
  for (const Shape& shape : kShapes) {
    const Inputs in(shape, 9);
    expect_close(run(shape, in, 9), defined(shape, in), 2e-5, 2e-5, "in double");
  }
}

TEST(DeltaRule, EveryPathCutAndThreadCountGivesTheSameBits) {
  for (const Shape& shape : kShapes) {
    const Inputs in(shape, 13);
    std::vector<float> want;
    for (const CpuPath path : available_cpu_paths()) {
      const ScopedCpuPath forced(path);
      for (const int threads : {1, 2}) {
        const ScopedThreads scope(threads);
        for (const int64_t chunk : {13, 1, 5}) {
          const std::vector<float> got = run(shape, in, chunk);
          if (want.empty()) want = got;
          expect_same_bits(got, want, std::string(name_of(path)) + " " + std::to_string(chunk) + " at a time");
        }
      }
    }
  }
}

TEST(DeltaRule, AStateAdvancesAlikeWhereNobodyWantsTheOutput) {
  const Shape shape{2, 4, 16, 24};
  const Inputs in(shape, 3);
  std::vector<float> state = in.state;
  delta_rule({.q = in.qkv.data(),
              .k = in.qkv.data() + 32,
              .v = in.qkv.data() + 64,
              .decay = in.gates.data(),
              .beta = in.gates.data() + 12,
              .state = state.data(),
              .tokens = 3,
              .k_heads = 2,
              .v_heads = 4,
              .k_dim = 16,
              .v_dim = 24,
              .qkv_stride = in.width,
              .gate_stride = 4});
  const std::vector<float> all = run(shape, in, 3);
  expect_same_bits(state, {all.end() - static_cast<int64_t>(state.size()), all.end()}, "state");
}

TEST(ShortConvolution, EveryPathAndCutGivesTheSumInOrder) {
  constexpr int64_t tokens = 11;
  for (const int64_t channels : {1, 16, 77, 512}) {
    for (const int64_t taps : {1, 2, 4}) {
      const int64_t stride = channels + 5;
      const std::vector<float> x = normal(tokens * stride, 4), before = normal((taps - 1) * channels + 1, 5);
      const std::vector<float> weight = normal(taps * channels, 6);
      const auto at = [&](int64_t t, int64_t c) {
        return t >= 0 ? x[t * stride + c] : before[(t + taps - 1) * channels + c];
      };
      std::vector<float> want(static_cast<size_t>(tokens * channels), 0.0f);
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t c = 0; c < channels; ++c) {
          for (int64_t j = 0; j < taps; ++j) {
            float& sum = want[t * channels + c];
            sum = std::fma(weight[j * channels + c], at(t - taps + 1 + j, c), sum);
          }
        }
      }
      for (const CpuPath path : available_cpu_paths()) {
        const ScopedCpuPath forced(path);
        std::vector<float> got(want.size());
        short_convolution(
            {x.data(), before.data(), weight.data(), got.data(), tokens, channels, taps, stride, channels});
        expect_same_bits(got, want, name_of(path));
      }
    }
  }
}

}  // namespace
}  // namespace kvarena::kernels
