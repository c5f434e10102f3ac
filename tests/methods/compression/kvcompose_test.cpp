// KVCompose: by hand, and what kvpress keeps (tests/golden/learned_kvpress.py).

#include "tests/methods/compression/learned_golden.h"
#include "tests/methods/compression/observed_layer.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::ObservedLayer;

TEST(Kvcompose, ScoresAreMeansOfEachQueryHeadsLargest) {
  ObservedLayer layer(std::vector<float>(12, 1.0F), 2, 3);
  const json spec = {{"name", "kvcompose"}};
  const Needs needs = make_method({{"name", "kvcompose"}, {"keep", 0.5}}, "test")->needs();
  layer.seen.reconstructions = {{.of = needs.reconstructions[0], .scores = {0.5F, 0.25F, 0, 0, 0.25F, 1}}};
  const at::Tensor apart = at::tensor({0.5F, 0.25F, 0.0F, 0.0F, 0.25F, 1.0F}).view({2, 3});
  const at::Tensor shared = at::tensor({0.75F, 0.5F, 0.5F, 0.25F, 0.5F, 1.5F}).view({2, 3});
  EXPECT_TRUE(at::equal(layer.scores({{"name", "kvcompose"}, {"shared", false}}), apart));
  EXPECT_TRUE(at::equal(layer.scores(spec), shared));
}

class KvcomposeGolden : public testing::LearnedGolden {
 protected:
  KvcomposeGolden() : LearnedGolden("kvcompose") {}
};

TEST_F(KvcomposeGolden, ReadsThePromptAgainBehindItself) {
  json spec = {{"name", "kvcompose"}};
  expect_equal("kvcompose composite", spec);
  expect_equal("kvcompose composite", spec, golden_["prefix"].get<int64_t>());  // the template is read again too
  spec["budget_rule"] = {{"name", "global"}};
  expect_equal("kvcompose heads", spec);
}

TEST_F(KvcomposeGolden, HeadsAlone) {
  expect_equal("kvcompose apart", {{"name", "kvcompose"}, {"group", "max"}, {"shared", false}});
}

}  // namespace
}  // namespace kvarena
