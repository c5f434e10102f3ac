// MagicPIG: the authors' attention (tests/golden/weighted_retrieval.py), and the estimate over many draws.

#include "tests/methods/retrieval/weighted_support.h"

namespace kvarena {
namespace {

TEST(MagicPig, AttendsAsTheAuthorsCode) { testing::expect_golden_attention("magicpig", 3e-6); }

TEST(MagicPig, LayersAtADistanceAttendToEverything) {
  const testing::WeightedStep step({{"name", "magicpig"}, {"dense_every", 16}}, 200, 1);
  EXPECT_EQ(step.view(), nullptr);
  EXPECT_EQ(step.layer().index->bytes(), 0);
}

/// Weighted by their probabilities, samples estimate attention to all entries: the mean over many directions is near
/// it, and much nearer than without weights every one of them is.
TEST(MagicPig, TheMeanOverManyDirectionsIsAttentionToEverything) {
  const testing::WeightedStep full({{"name", "full"}}, 300, 7);
  constexpr int64_t kDraws = 200;
  std::vector<double> mean(64);
  double alone = 0;
  for (int64_t seed = 0; seed < kDraws; ++seed) {
    const testing::WeightedStep step(
        {{"name", "magicpig"}, {"bits", 4}, {"tables", 16}, {"window", 16}, {"dense_every", 0}, {"seed", seed}}, 300,
        7);
    for (size_t i = 0; i < mean.size(); ++i) {
      mean[i] += step.attended()[i] / static_cast<double>(kDraws);
      alone += std::fabs(step.attended()[i] - full.attended()[i]) / static_cast<double>(64 * kDraws);
    }
  }
  double together = 0;
  for (size_t i = 0; i < mean.size(); ++i) together += std::fabs(mean[i] - full.attended()[i]) / 64;
  EXPECT_LT(together, alone / 4);
}

}  // namespace
}  // namespace kvarena
