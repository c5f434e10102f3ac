// RetroInfer: the authors' clustering and attention (tests/golden/weighted_retrieval.py), and what estimating gains.

#include "tests/methods/retrieval/weighted_support.h"

namespace kvarena {
namespace {

TEST(RetroInfer, AttendsAsTheAuthorsCode) { testing::expect_golden_attention("retroinfer", 5e-6); }

TEST(RetroInfer, TheEstimationZoneIsNearerToEverythingThanLeavingItOut) {
  double near = 0, far = 0;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const testing::WeightedStep full({{"name", "full"}}, 700, seed);
    const testing::WeightedStep with({{"name", "retroinfer"}, {"estimated", 0.9}, {"tokens", 100}}, 700, seed);
    const testing::WeightedStep without({{"name", "retroinfer"}, {"estimated", 0}, {"tokens", 100}}, 700, seed);
    for (size_t i = 0; i < 64; ++i) {
      near += std::fabs(with.attended()[i] - full.attended()[i]);
      far += std::fabs(without.attended()[i] - full.attended()[i]);
    }
  }
  EXPECT_LT(near, far / 2);
}

}  // namespace
}  // namespace kvarena
