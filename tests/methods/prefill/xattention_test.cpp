// XAttention: what the authors' code chooses (tests/golden/sparse_prefill.py), everything at a threshold of 1.

#include "tests/methods/prefill/prefill_support.h"

namespace kvarena {
namespace {

using Request = testing::PrefillRequest;

TEST(XAttention, ChoosesBlocksAsTheAuthorsCode) { testing::expect_golden_blocks("xattention", 128); }

TEST(XAttention, AThresholdOfOneHasTheBitsOfDenseAttention) {
  const Request all({{"name", "xattention"}, {"threshold", 1}}, 777, 5), dense({{"name", "full"}}, 777, 5);
  EXPECT_NE(all.cache.layers[0].view, nullptr);
  EXPECT_EQ(all.attended(), dense.attended());
}

TEST(XAttention, RefusesAStrideThatDoesNotDivideABlock) {
  EXPECT_EQ(check_method({{"name", "xattention"}, {"stride", 24}}, "test").size(), 1U);
}

}  // namespace
}  // namespace kvarena
