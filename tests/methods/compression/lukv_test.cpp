// LU-KV: entries that kvpress's press keeps of the same curves (tests/golden/learned_kvpress.py), curves that the
// authors' code makes of the same utilities (tests/golden/lukv.py).

#include "tests/methods/compression/learned_golden.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::draw;

class LuKvGolden : public testing::LearnedGolden {
 protected:
  LuKvGolden() : LearnedGolden("lukv") {}
  [[nodiscard]] std::string curves() const {
    return drawn("curves", {{"curves", draw("curves", {99, 3, 2}, 0.45, 0.5F)}});
  }
};

TEST_F(LuKvGolden, OverExpectedAttention) { expect_equal("lukv expected", {{"name", "lukv"}, {"weights", curves()}}); }

TEST_F(LuKvGolden, OverAnotherScorerWithAWindow) {
  expect_equal("lukv norm",
               {{"name", "lukv"}, {"scorer", {{"name", "knorm"}}}, {"sinks", 3}, {"window", 2}, {"weights", curves()}});
}

TEST(LuKv, MakesTheCurvesOfTheAuthorsCode) {
  const json golden = testing::golden("lukv.json");
  const int64_t entries = golden["entries"];
  const RandomStream scores(1, "scores"), utilities(1, "utility");
  std::vector<FittedTensors> layers;
  uint64_t place = 0;
  for (int64_t layer = 0; layer < 3; ++layer) {
    FittedTensor score{.shape = {2, entries}, .values = {}}, utility = score;
    for (int64_t i = 0; i < 2 * entries; ++i, ++place) {
      const double draw = utilities.uniform(place);
      score.values.push_back(static_cast<float>(scores.uniform(place)));
      utility.values.push_back(static_cast<float>(draw * draw * static_cast<double>(2 * layer + i / entries + 1)));
    }
    layers.push_back({{"scores", score}, {"utility", utility}});
  }
  for (const json& one : golden["cases"]) {
    SCOPED_TRACE(one["sinks"].dump() + " and " + one["window"].dump());
    const json spec = {{"name", "lukv"}, {"keep", 1}, {"sinks", one["sinks"]}, {"window", one["window"]}};
    const auto fitter = make_method(spec, "test")->fitter();
    const FittedTensor curves = fitter->solve({fitter->join(layers)}, RandomStream(0, "test")).at("curves");
    ASSERT_EQ(curves.shape, (std::vector<int64_t>{99, 3, 2}));
    for (size_t i = 0; i < curves.values.size(); ++i) {
      const int64_t gone = one["gone"][i / 2 % 3][i % 2][i / 6];
      EXPECT_NEAR(curves.values[i], static_cast<double>(gone) / static_cast<double>(entries), 1e-6) << i;
    }
  }
}

}  // namespace
}  // namespace kvarena
