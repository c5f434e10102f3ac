// Expected Attention: by hand, and what kvpress keeps (tests/golden/learned_kvpress.py).

#include "tests/methods/compression/learned_golden.h"
#include "tests/methods/compression/observed_layer.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::draw;
using testing::kObservedDim;
using testing::ObservedLayer;

TEST(ExpectedAttention, AKeyAlongTheMeanQueryIsExpectedMost) {
  ObservedLayer layer({0, 0, 2, 0, 0, 2}, 1, 3);
  // In two dimensions: mean (1, 0), covariance diag(1, 0); scaled so that 16 give the same logits.
  QueryMoments moments{.left_out = 0,
                       .count = 5,
                       .mean = std::vector<double>(kObservedDim),
                       .covariance = std::vector<double>(kObservedDim * kObservedDim)};
  moments.mean[0] = std::sqrt(kObservedDim / 2.0);
  moments.covariance[0] = kObservedDim / 2.0;
  layer.seen.query_moments = {moments};
  const at::Tensor scores = layer.scores({{"name", "expected_attention"}, {"sinks", 0}, {"value_norm", false}});
  EXPECT_NEAR(scores[0][0].item<double>(), 0.07587, 1e-5);  // logits 0, 2.41421, 0
  EXPECT_NEAR(scores[0][1].item<double>(), 0.84827, 1e-5);
  EXPECT_NEAR(scores[0][2].item<double>(), 0.07587, 1e-5);
}

class ExpectedAttentionGolden : public testing::LearnedGolden {
 protected:
  ExpectedAttentionGolden() : LearnedGolden("expected_attention") {}
};

FittedTensors statistics() {
  const FittedTensor root = draw("query_root", {3, 4, 32, 32}, 0.2);
  FittedTensor covariance{.shape = root.shape, .values = std::vector<float>(root.values.size(), 0.0F)};
  for (size_t i = 0; i < root.values.size(); ++i) {
    const size_t matrix = i / 1024 * 1024;
    for (size_t c = 0; c < 32; ++c) {
      covariance.values[i] += root.values[matrix + i % 1024 / 32 * 32 + c] * root.values[matrix + i % 32 * 32 + c];
    }
  }
  return {{"query_mean", draw("query_mean", {3, 4, 32}, 1.0)}, {"query_cov", covariance}};
}

TEST_F(ExpectedAttentionGolden, FromThePromptsOwnQueries) {
  expect_equal("expected_attention plain", {{"name", "expected_attention"}});
  expect_equal("expected_attention mean",
               {{"name", "expected_attention"}, {"covariance", false}, {"value_norm", false}});
  expect_equal("expected_attention wide",
               {{"name", "expected_attention"}, {"sinks", 9}, {"future", 64}, {"epsilon", 0.01}});
}

TEST(ExpectedAttention, WeightsThatNothingWouldReadAreRefused) {
  const auto problems = [](const char* statistics) {
    return check_method(
        {{"name", "expected_attention"}, {"keep", 0.5}, {"statistics", statistics}, {"weights", "w.safetensors"}},
        "methods[1]");
  };
  EXPECT_TRUE(problems("fitted").empty());
  ASSERT_EQ(problems("prompt").size(), 1U);
  EXPECT_EQ(problems("prompt").front(),
            "methods[1].weights: found \"w.safetensors\" beside the prompt's own statistics, expected \"statistics\": "
            "\"fitted\" beside it");
}

TEST_F(ExpectedAttentionGolden, FromStatistics) {
  expect_equal(
      "expected_attention fitted",
      {{"name", "expected_attention"}, {"statistics", "fitted"}, {"weights", drawn("statistics", statistics())}});
}

}  // namespace
}  // namespace kvarena
