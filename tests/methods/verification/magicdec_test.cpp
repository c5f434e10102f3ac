// MagicDec: rounds restated in float64 over the transformers library's weights (tests/golden/speculation.py; its
// authors' code is CUDA), and its two draft caches.

#include "tests/methods/verification/drafted.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::Decoded;
using testing::tiny_prompt;

using MagicDec = testing::Drafts;

TEST_F(MagicDec, DraftsAndAcceptsAsRestated) { testing::expect_golden_rounds("magicdec"); }

TEST_F(MagicDec, DraftsAsItsCompressorsUnderVeriCache) {
  const Prefill prompt = prefill(model_, tiny_prompt(160),
                                 make_method({{"name", "snapkv"}, {"keep", 0.5}, {"window", 32}}, "test")->needs());
  const SessionOptions options{.stop = {.max_new_tokens = 40}};
  const json window = {{"name", "streaming_llm"}, {"tokens", 64}};
  const json votes = {{"name", "snapkv"}, {"tokens", 64}, {"window", 32}, {"kernel", 5}, {"pool", "avg"}};
  for (const auto& [selection, drafter] : {std::pair{"window", window}, std::pair{"snapkv", votes}}) {
    const Decoded found =
        decode(prompt, {{"name", "magicdec"}, {"draft_tokens", 64}, {"selection", selection}}, options);
    const Decoded same = decode(prompt, {{"name", "vericache"}, {"draft_length", 7}, {"drafter", drafter}}, options);
    EXPECT_EQ(found.tokens, decode(prompt, {{"name", "full"}}, options).tokens);
    ASSERT_EQ(found.rounds.size(), same.rounds.size()) << selection;
    for (size_t i = 0; i < found.rounds.size(); ++i) {
      EXPECT_EQ(found.rounds[i].drafted, same.rounds[i].drafted) << selection << " " << i;
      EXPECT_EQ(found.rounds[i].accepted, same.rounds[i].accepted) << selection << " " << i;
    }
  }
}

}  // namespace
}  // namespace kvarena
