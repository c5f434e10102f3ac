// RotateKV: outlier channels and massive tokens, and decoded entries against its formula in float64
// (tests/golden/quantizers.py).

#include "tests/methods/compression/decoded_entries.h"
#include "tests/methods/compression/restored_layer.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::errors;
using testing::filled;
using testing::observations;
using testing::PackedLayer;
using testing::random_floats;

TEST(RotateKv, SpreadsAnOutlierChannelAndKeepsMassiveTokens) {
  auto rows = random_floats(256 * 128, "rows");
  for (int64_t t = 0; t < 256; ++t) rows[t * 128 + 5] = 20 + rows[t * 128 + 5];
  const json spec = {{"name", "rotatekv"}, {"bits", 4}, {"massive", 0}};
  const json plain = {{"name", "kvtuner"}, {"base", "per_token"}, {"bits", {4}}};
  EXPECT_LT(errors(spec, rows, 256).first, 0.5 * errors(plain, rows, 256).first);

  const PackedLayer layer = filled({{"name", "rotatekv"}, {"massive", 3}}, 200);
  const auto seen = observations(200);
  std::vector<size_t> order(seen.hidden.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, std::ranges::greater{}, [&](size_t i) { return std::fabs(seen.hidden[i]); });
  const auto apart = layer.cache.layers[0].segments()[0]->positions(1);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(std::ranges::count(apart, static_cast<int32_t>(order[i] / 8)) == 1) << order[i] / 8;
  }
}

TEST(RotateKv, DecodesAsItsFormula) { testing::expect_golden_decoded("rotatekv", 2); }

}  // namespace
}  // namespace kvarena
