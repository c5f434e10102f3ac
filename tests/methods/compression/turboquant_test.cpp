// TurboQuant: its theoretical distortion, the unbiased sketch, and decoded entries against its formula in float64
// (tests/golden/quantizers.py).

#include <cstdio>
#include <numbers>

#include "tests/methods/compression/decoded_entries.h"
#include "tests/methods/compression/restored_layer.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::kRestoredDim;
using testing::observations;
using testing::PackedLayer;
using testing::random_floats;

/// Mean of |x - x^|^2 / |x|^2 over Gaussian vectors.
double distortion(int64_t bits, bool correct) {
  constexpr int64_t n = 4096;
  PackedLayer layer({{"name", "turboquant"}, {"bits", bits}, {"value_bits", bits}, {"norm_correction", correct}},
                    {.q_heads = 1, .kv_heads = 1, .head_dim = 128, .dtype = DType::f32});
  const auto u = random_floats(2 * n * 128, "gauss");
  std::vector<float> x(static_cast<size_t>(n * 128));
  for (size_t i = 0; i < x.size(); ++i) {
    const double radius = std::sqrt(-2 * std::log((u[2 * i] + 1) / 2 + 1e-12));
    x[i] = static_cast<float>(radius * std::cos(std::numbers::pi * u[2 * i + 1]));
  }
  layer.append(x, x, n);
  layer.compress();
  std::vector<float> back(x.size());
  layer.packed()->read(0, back.data(), nullptr);
  double total = 0;
  for (int64_t t = 0; t < n; ++t) {
    double error = 0;
    double length = 0;
    for (int64_t c = 0; c < 128; ++c) {
      const double e = static_cast<double>(back[t * 128 + c]) - x[t * 128 + c];
      error += e * e;
      length += static_cast<double>(x[t * 128 + c]) * x[t * 128 + c];
    }
    total += error / length;
  }
  return total / n;
}

TEST(TurboQuant, DistortionIsTheTheoreticalOne) {
  // Unit vectors of 128 coordinates; method sheet 2.3, checked against arXiv:2504.19874, theorem 1 (0.36, 0.117, 0.03,
  // 0.009).
  const double theory[] = {0.360889, 0.116000, 0.033966, 0.009315};
  for (int64_t bits = 1; bits <= 4; ++bits) {
    const double got = distortion(bits, false);
    std::printf("turboquant %ld bits: distortion %.5f, theory %.5f\n", static_cast<long>(bits), got, theory[bits - 1]);
    EXPECT_NEAR(got / theory[bits - 1], 1, 0.02) << bits;
  }
}

TEST(TurboQuant, TheSketchIsUnbiased) {
  // <q, k^> over many keys equals <q, k> on average; without the sketch the levels shrink it (by D = 0.117 at 2 bits).
  const auto rows = random_floats(4000 * 128, "rows");
  const auto q = random_floats(kRestoredDim, "q");
  const auto slope = [&](const json& spec) {
    PackedLayer layer(spec, testing::kCodecShape, &testing::turning_model());
    layer.append(rows, rows, 4000);
    layer.compress(observations(4000));
    std::vector<float> k(4000 * kRestoredDim);
    layer.packed()->read(0, k.data(), nullptr);
    double both = 0;
    double square = 0;
    for (int64_t t = 0; t < 4000; ++t) {
      double want = 0;
      double got = 0;
      for (int64_t c = 0; c < kRestoredDim; ++c) {
        want += static_cast<double>(q[c]) * rows[t * 128 + c];
        got += static_cast<double>(q[c]) * k[t * kRestoredDim + c];
      }
      both += want * got;
      square += want * want;
    }
    return both / square;
  };
  EXPECT_NEAR(slope({{"name", "turboquant"}, {"variant", "prod"}, {"bits", 3}}), 1, 0.02);
  EXPECT_NEAR(slope({{"name", "turboquant"}, {"norm_correction", false}, {"bits", 2}}), 0.883, 0.02);
}

TEST(TurboQuant, DecodesAsItsFormula) { testing::expect_golden_decoded("turboquant", 3); }

}  // namespace
}  // namespace kvarena
