// FlexPrefill: what the authors' code chooses (tests/golden/sparse_prefill.py), prompts that it attends to in full.

#include "tests/methods/prefill/prefill_support.h"

namespace kvarena {
namespace {

using Request = testing::PrefillRequest;

TEST(FlexPrefill, ChoosesBlocksAsTheAuthorsCode) { testing::expect_golden_blocks("flexprefill"); }

TEST(FlexPrefill, AttendsToShortPromptsInFull) {
  const nlohmann::json spec = {{"name", "flexprefill"}, {"min_budget", 64}, {"block", 32}};
  EXPECT_EQ(Request(spec, 64, 3).cache.layers[0].view, nullptr);
  EXPECT_NE(Request(spec, 65, 3).cache.layers[0].view, nullptr);
}

TEST(FlexPrefill, RefusesABlockThatDoesNotFillCells) {
  EXPECT_EQ(check_method({{"name", "flexprefill"}, {"block", 40}}, "test").size(), 1U);
}

}  // namespace
}  // namespace kvarena
