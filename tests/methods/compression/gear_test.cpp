// GEAR: outliers and low-rank corrections, and decoded entries against its formula in float64
// (tests/golden/quantizers.py).

#include "tests/methods/compression/decoded_entries.h"
#include "tests/methods/compression/restored_layer.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::errors;
using testing::kRestoredDim;
using testing::PackedLayer;
using testing::random_floats;

TEST(Gear, OutliersComeBackAndLowRankErrorVanishes) {
  auto rows = random_floats(256 * 128, "rows");
  rows[100 * 128 + 7] = 50;
  PackedLayer layer({{"name", "gear"}, {"bits", 2}}, testing::kCodecShape, &testing::turning_model());
  layer.append(rows, rows, 256);
  layer.compress();
  std::vector<float> k(256 * kRestoredDim);
  std::vector<float> v(k.size());
  layer.packed()->read(0, k.data(), v.data());
  EXPECT_EQ(k[100 * kRestoredDim + 7], 50);
  EXPECT_EQ(v[100 * kRestoredDim + 7], 50);
  const json plain = {{"name", "gear"}, {"bits", 2}, {"sparsity", 0}, {"rank_prefill", 0}};
  const json corrected = {{"name", "gear"}, {"bits", 2}, {"sparsity", 0}, {"rank_prefill", 32}};
  const auto smooth = random_floats(256 * 128, "smooth");
  EXPECT_LT(errors(corrected, smooth, 256).first, 0.6 * errors(plain, smooth, 256).first);
}

TEST(Gear, DecodesAsItsFormula) { testing::expect_golden_decoded("gear", 1); }

}  // namespace
}  // namespace kvarena
