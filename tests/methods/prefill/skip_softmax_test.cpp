// Skip-softmax: what NVIDIA's code keeps (tests/golden/sparse_prefill.py), every block under a low threshold.

#include "tests/methods/prefill/prefill_support.h"

namespace kvarena {
namespace {

using Request = testing::PrefillRequest;

TEST(SkipSoftmax, KeepsBlocksAsNvidiasCode) { testing::expect_golden_blocks("skip_softmax", 128); }

TEST(SkipSoftmax, ALowThresholdHasTheBitsOfDenseAttention) {
  const Request all({{"name", "skip_softmax"}, {"scale", 1e-30}}, 777, 5), dense({{"name", "full"}}, 777, 5);
  EXPECT_NE(all.cache.layers[0].view, nullptr);
  EXPECT_EQ(all.attended(), dense.attended());
}

TEST(SkipSoftmax, AttendsToAPromptOfAtMostItsScaleInFull) {
  EXPECT_EQ(Request({{"name", "skip_softmax"}, {"scale", 300}}, 300, 5).cache.layers[0].view, nullptr);
  EXPECT_NE(Request({{"name", "skip_softmax"}, {"scale", 300}}, 301, 5).cache.layers[0].view, nullptr);
}

}  // namespace
}  // namespace kvarena
