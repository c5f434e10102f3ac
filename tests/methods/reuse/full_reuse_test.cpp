// Full reuse: where it equals a full prefill bit for bit, and the logits of chunks that have not seen each other,
// restated in float64 (tests/golden/reuse_methods.py).

#include "tests/methods/reuse/reused_prompt.h"

namespace kvarena {
namespace {

using testing::expect_full;
using testing::run;
using testing::tiny_model;
using testing::tiny_prompt;

TEST(FullReuse, OfOneChunkAtTheBeginningIsFullRecomputeBitForBit) {
  Transformer model = tiny_model();
  for (const int64_t n : {2, 30, 513, 600}) {
    const std::vector<int32_t> tokens = tiny_prompt(n);
    const PromptLayout layout{.question = n - 1 - n / 10};
    expect_full(model, tokens, layout, {{"name", "full_reuse"}, {"chunk", 1024}});
    expect_full(model, tokens, layout, {{"name", "full_recompute"}});
    const ReusedPrompt reused = run(model, tokens, layout, {{"name", "full_reuse"}, {"chunk", 1024}});
    EXPECT_EQ(reused.record.reused, *layout.question);
  }
}

TEST(FullReuse, OfAPrefixAloneIsFullRecompute) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(80);
  expect_full(model, tokens, {.prefix = 70, .question = 70}, {{"name", "full_reuse"}, {"chunk", 16}});
}

TEST(FullReuse, ComputesAndPredictsAsTheReference) { testing::expect_golden_reuse("full_reuse", 3); }

}  // namespace
}  // namespace kvarena
