// Full recompute: the bits of a full prefill whatever the prompt's parts, and the logits restated in float64
// (tests/golden/reuse_methods.py).

#include "tests/methods/reuse/reused_prompt.h"

namespace kvarena {
namespace {

using testing::expect_full;
using testing::run;
using testing::tiny_model;
using testing::tiny_prompt;

TEST(FullRecompute, IsAFullPrefillBitForBit) {
  Transformer model = tiny_model();
  for (const int64_t n : {2, 100, 600}) {
    const std::vector<int32_t> tokens = tiny_prompt(n);
    for (const PromptLayout& layout : {PromptLayout{}, PromptLayout{.prefix = n / 9, .question = n - n / 8}}) {
      expect_full(model, tokens, layout, {{"name", "full_recompute"}});
      const ReusedPrompt computed = run(model, tokens, layout, {{"name", "full_recompute"}});
      EXPECT_EQ(computed.record.reused, 0);
      EXPECT_DOUBLE_EQ(computed.record.recompute_share, 1);
    }
  }
}

TEST(FullRecompute, PredictsAsRestated) { testing::expect_golden_reuse("full_recompute", 3); }

}  // namespace
}  // namespace kvarena
