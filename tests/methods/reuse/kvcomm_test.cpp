// KVCOMM: which parts are computed and the logits over the others' offsets, by its authors' engine over a model in
// float64 (tests/golden/reuse_methods.py), and where parts repeat.

#include "harness/engine/reuse/deviation.h"
#include "tests/methods/reuse/reused_prompt.h"

namespace kvarena {
namespace {

using testing::FullPrompt;
using testing::run;
using testing::tiny_model;
using testing::tiny_prompt;

TEST(KvComm, ComputesAndPredictsAsTheReference) { testing::expect_golden_reuse("kvcomm", 6); }

TEST(KvComm, APartThatRepeatsAnAnchorInItsPlaceGetsItsOffsets) {
  Transformer model = tiny_model(1, {.weights = kernels::DType::f32, .cache = kernels::DType::f32});
  std::vector<int32_t> tokens = tiny_prompt(3 * 32);
  const std::vector<int32_t> anchor(tokens.begin() + 32, tokens.begin() + 64);
  for (int i = 0; i < 2; ++i) tokens.insert(tokens.end(), anchor.begin(), anchor.end());
  tokens.push_back(9);
  const ReusedPrompt reused = run(model, tokens, {}, {{"name", "kvcomm"}, {"chunk", 32}});
  EXPECT_EQ(reused.record.recomputed.front(), 32);
  EXPECT_EQ(reused.record.recomputed.size(), 64U);
  const FullPrompt full(model, tokens);
  const auto all = std::ssize(tokens);
  const double offset = layer_deviations(full.cache, reused.cache, all)[2];
  const ReusedPrompt plain = run(model, tokens, {}, {{"name", "full_reuse"}, {"chunk", 32}});
  EXPECT_LT(offset, 0.8 * layer_deviations(full.cache, plain.cache, all)[2]);
}

TEST(KvComm, APromptThatIsCutIntoPassesHasTheSameBits) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(300);
  const PromptLayout layout{.prefix = 30, .question = 280};
  const auto method = make_method({{"name", "kvcomm"}, {"threshold", 1}, {"chunk", 64}}, "test");
  ReuseMemory memory;
  prime(model, tokens, layout, *method->reuser(), memory);
  const ReusedPrompt whole = reuse_prompt(model, tokens, layout, *method->reuser(), memory);
  EXPECT_EQ(whole.record.recomputed.size(), 128U) << "two anchors, and three parts by their offsets";
  ReuseRun cut(model, tokens, layout, *method->reuser(), memory);
  cut.set_chunk(7);
  cut.begin(ReuseRun::Beginning::beside_passes);
  cut.arrange();
  while (cut.remaining() > 0) {
    const SequencePass pass = cut.next_pass();
    cut.consume(model.forward({&pass, 1}));
  }
  const ReusedPrompt same = cut.finish();
  EXPECT_EQ(same.logits, whole.logits);
  testing::expect_same_bits(same.cache, whole.cache);
}

}  // namespace
}  // namespace kvarena
