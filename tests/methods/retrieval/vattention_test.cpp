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

TEST(VAttention, TheMeanOverManySeedsIsAttentionToEverything) {
  testing::expect_mean_of_draws([](int64_t seed) { return spec(seed, 0.5); }, 500);
}

}  // namespace
}  // namespace kvarena
