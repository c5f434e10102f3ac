// EPIC: which tokens are computed anew, by its authors' evaluation, and the logits, restated in float64
// (tests/golden/reuse_methods.py).

#include <numeric>

#include "tests/methods/reuse/reused_prompt.h"

namespace kvarena {
namespace {

using testing::run;
using testing::tiny_model;
using testing::tiny_prompt;

TEST(Epic, ComputesTheFirstTokensOfEveryChunkButTheFirst) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(3 * 512 + 20);
  const ReusedPrompt reused = run(model, tokens, {.question = 3 * 512}, {{"name", "epic"}, {"tokens", 16}});
  std::vector<int32_t> expected(32);
  std::iota(expected.begin(), expected.begin() + 16, 512);
  std::iota(expected.begin() + 16, expected.end(), 1024);
  EXPECT_EQ(reused.record.recomputed, expected);
  EXPECT_EQ(reused.record.reused, static_cast<int64_t>(tokens.size()) - 52);
  EXPECT_DOUBLE_EQ(reused.record.recompute_share, 52.0 / static_cast<double>(tokens.size()));
}

TEST(Epic, ComputesAndPredictsAsTheReference) { testing::expect_golden_reuse("epic", 9); }

}  // namespace
}  // namespace kvarena
