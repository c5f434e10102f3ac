// KVQuant: outliers and code books, and decoded entries against its formula in float64 (tests/golden/quantizers.py).

#include <cmath>

#include "tests/methods/compression/decoded_entries.h"
#include "tests/methods/compression/restored_layer.h"

namespace kvarena {
namespace {

using testing::kRestoredDim;
using testing::PackedLayer;
using testing::random_floats;

TEST(KvQuant, OutliersAreExactAndMaskedAsTheAuthorsDo) {
  auto rows = random_floats(400 * 128, "rows");
  rows[37 * 128 + 70] = -30;
  PackedLayer layer({{"name", "kvquant"}, {"bits", 2}}, testing::kCodecShape, &testing::turning_model());
  layer.append(rows, rows, 400);
  layer.compress();
  std::vector<float> k(400 * kRestoredDim);
  std::vector<float> v(k.size());
  layer.packed()->read(1, k.data(), v.data());
  EXPECT_EQ(v[37 * kRestoredDim + 6], -30);
  EXPECT_NEAR(k[37 * kRestoredDim + 6], -30, 0.03);  // through f16 before the rotation
}

TEST(KvQuant, WithoutOutliersTheErrorIsHalfAGap) {
  const auto rows = random_floats(300 * 128, "rows");
  PackedLayer layer({{"name", "kvquant"}, {"bits", 4}, {"codebook", "uniform"}, {"outliers", 0}}, testing::kCodecShape,
                    &testing::turning_model());
  layer.append(rows, rows, 300);
  layer.compress();
  std::vector<float> v(300 * kRestoredDim);
  layer.packed()->read(0, nullptr, v.data());
  for (int64_t t = 0; t < 300; ++t) {
    for (int64_t c = 0; c < kRestoredDim; ++c) ASSERT_NEAR(v[t * kRestoredDim + c], rows[t * 128 + c], 1.0 / 15 + 0.01);
  }
}

TEST(KvQuant, EightBitsHaveLevelsThatFollowTheNumbers) {
  const auto rows = random_floats(300 * 128, "rows");
  const auto mean_error = [&](const char* codebook) {
    PackedLayer layer({{"name", "kvquant"}, {"bits", 8}, {"codebook", codebook}, {"outliers", 0}}, testing::kCodecShape,
                      &testing::turning_model());
    layer.append(rows, rows, 300);
    layer.compress();
    std::vector<float> v(300 * kRestoredDim);
    layer.packed()->read(0, nullptr, v.data());
    double error = 0;
    for (int64_t t = 0; t < 300; ++t) {
      for (int64_t c = 0; c < kRestoredDim; ++c)
        error += std::fabs(v[t * kRestoredDim + c] - rows[t * 128 + c]) / (300 * kRestoredDim);
    }
    return error;
  };
  const double uniform = mean_error("uniform");
  EXPECT_NEAR(uniform, 0.5 / 255, 0.1 / 255) << "a quarter of a gap, of numbers between -1 and 1";
  EXPECT_LT(mean_error("nf"), 4 * uniform);
  EXPECT_LT(mean_error("nuq"), 1.1 * uniform);
}

TEST(KvQuant, DecodesAsItsFormula) { testing::expect_golden_decoded("kvquant", 1); }

}  // namespace
}  // namespace kvarena
