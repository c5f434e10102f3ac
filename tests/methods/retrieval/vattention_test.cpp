// vAttention: the authors' attention (tests/golden/weighted_retrieval.py), its error bound, and the estimate over many
// draws.

#include "tests/methods/retrieval/weighted_support.h"

namespace kvarena {
namespace {

using testing::WeightedStep;

nlohmann::json spec(int64_t seed, double epsilon) {
  return {{"name", "vattention"}, {"sinks", 4},         {"window", 16},  {"heavy", 0.02},
          {"base", 0.02},         {"epsilon", epsilon}, {"delta", 0.25}, {"seed", seed}};
}

TEST(VAttention, AttendsAsTheAuthorsCode) { testing::expect_golden_attention("vattention", 3e-6); }

TEST(VAttention, AttendsToEverythingWhereSinksAndWindowReach) {
  EXPECT_EQ(WeightedStep({{"name", "vattention"}}, 200, 1).view(), nullptr);
}

TEST(VAttention, SmallerErrorsTakeMoreEntries) {
  int64_t before = 0;
  for (const double epsilon : {0.2, 0.1, 0.05}) {
    const WeightedStep step(spec(0, epsilon), 500, 3);
    const int64_t entries = step.view()->entries(0);
    EXPECT_GT(entries, before);
    EXPECT_LT(entries, 501);
    before = entries;
  }
}

/// Weighted by their probabilities, samples estimate attention to all entries: the mean over many seeds is near it, and
/// much nearer than every one of them.
TEST(VAttention, TheMeanOverManySeedsIsAttentionToEverything) {
  const WeightedStep full({{"name", "full"}}, 500, 7);
  constexpr int64_t kDraws = 200;
  std::vector<double> mean(64);
  double alone = 0;
  for (int64_t seed = 0; seed < kDraws; ++seed) {
    const WeightedStep step(spec(seed, 0.5), 500, 7);
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
