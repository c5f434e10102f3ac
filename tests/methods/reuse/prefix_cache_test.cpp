// Prefix caching: equals a full prefill bit for bit and in float64 (tests/golden/reuse_methods.py), and reuses whole
// blocks.

#include "tests/methods/reuse/reused_prompt.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::expect_full;
using testing::run;
using testing::tiny_model;
using testing::tiny_prompt;

TEST(PrefixCache, IsFullRecomputeBitForBitAndReusesWholeBlocks) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(300);
  const PromptLayout layout{.prefix = 11, .question = 280};
  for (const auto& [block, found] : {std::pair{16, 64}, {1, 75}, {64, 64}, {100, 0}}) {
    const json spec = {{"name", "prefix_cache"}, {"block", block}, {"chunk", 64}};
    expect_full(model, tokens, layout, spec);
    EXPECT_EQ(run(model, tokens, layout, spec).record.reused, found) << "the prefix and the first chunk, 75 tokens";
  }
}

TEST(PrefixCache, ComputesAndPredictsAsTheReference) { testing::expect_golden_reuse("prefix_cache", 6); }

}  // namespace
}  // namespace kvarena
