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

TEST(MagicPig, TheMeanOverManyDirectionsIsAttentionToEverything) {
  const auto spec = [](int64_t seed) {
    return nlohmann::json{{"name", "magicpig"}, {"bits", 4},        {"tables", 16},
                          {"window", 16},       {"dense_every", 0}, {"seed", seed}};
  };
  testing::expect_mean_of_draws(spec, 300);
}

}  // namespace
}  // namespace kvarena
