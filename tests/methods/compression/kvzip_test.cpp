// KVzip: by hand, and what kvpress keeps (tests/golden/learned_kvpress.py).

#include "tests/methods/compression/learned_golden.h"
#include "tests/methods/compression/observed_layer.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::ObservedLayer;

/// KVzip on ten entries of one head, scored .9, .8, ..., .0.
std::vector<int32_t> kvzip_keeps(double keep, const std::string& rule, int64_t prefix = 0) {
  ObservedLayer layer(std::vector<float>(20, 1.0F), 1, 10);
  const Needs needs = make_method({{"name", "kvzip"}, {"keep", keep}}, "test")->needs();
  std::vector<float> scores;
  for (int i = 0; i < 10; ++i) scores.push_back(0.9F - 0.1F * static_cast<float>(i));
  layer.seen.reconstructions = {{.of = needs.reconstructions[0], .prefix = prefix, .scores = scores}};
  return layer.kept({{"name", "kvzip"}, {"keep", keep}, {"budget_rule", {{"name", rule}}}});
}

TEST(Kvzip, TheBudgetIsMetExactly) {
  EXPECT_EQ(kvzip_keeps(0.5, "global"), (std::vector<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(kvzip_keeps(0.5, "uniform"), (std::vector<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(kvzip_keeps(0.1, "global"), (std::vector<int32_t>{0}));
  EXPECT_EQ(kvzip_keeps(1.0, "global").size(), 10U);
}

class KvzipGolden : public testing::LearnedGolden {
 protected:
  KvzipGolden() : LearnedGolden("kvzip") {}
};

TEST_F(KvzipGolden, RepeatsThePromptInChunks) {
  json spec = {{"name", "kvzip"}, {"form", "kvpress"}, {"chunk", golden_["chunk"]}};
  expect_equal("kvzip bare global", spec);
  expect_equal("kvzip template global", spec, golden_["prefix"].get<int64_t>());
  spec["budget_rule"] = {{"name", "uniform"}};
  expect_equal("kvzip bare uniform", spec);
  expect_equal("kvzip template uniform", spec, golden_["prefix"].get<int64_t>());
}

TEST_F(KvzipGolden, PlusWeighsByOutputs) {
  expect_equal("kvzip plus global",
               {{"name", "kvzip"}, {"form", "kvpress"}, {"chunk", golden_["chunk"]}, {"plus", true}});
}

}  // namespace
}  // namespace kvarena
