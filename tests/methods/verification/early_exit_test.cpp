// Early exit: drafts of the first layers never change the output, leaving early is a shorter model, and rounds are
// those of the transformers library (tests/golden/speculation.py).

#include <algorithm>

#include "tests/methods/verification/drafted.h"

namespace kvarena {
namespace {

using testing::Decoded;
using testing::tiny_prompt;

using EarlyExit = testing::Drafts;

TEST_F(EarlyExit, AllLayersDraftPerfectlyAndFewerNeverChangeTheOutput) {
  const Prefill prompt = prefill(model_, tiny_prompt(90), {});
  const SessionOptions options{.stop = {.max_new_tokens = 50}};
  const Decoded full = decode(prompt, {{"name", "full"}}, options);
  for (const double share : {0.3, 0.7, 1.0}) {
    const Decoded found = decode(prompt, {{"name", "early_exit"}, {"layers", share}, {"draft_length", 5}}, options);
    EXPECT_EQ(found.tokens, full.tokens) << share;
    if (share < 1) continue;
    for (const VerifyRound& round : found.rounds) EXPECT_EQ(round.accepted, round.drafted);
  }
}

TEST_F(EarlyExit, LeavingEarlyEqualsAShorterModelAndDisturbsNoOther) {
  // Sequences that leave after 1, 2 and all 3 layers in one pass, against each alone.
  const std::vector<std::vector<int32_t>> prompts = {tiny_prompt(9, 1), tiny_prompt(5, 2), tiny_prompt(7, 3),
                                                     tiny_prompt(4, 4)};
  const std::vector<int64_t> exits = {2, 0, 1, 3};
  std::vector<KvCache> caches;
  for (size_t i = 0; i < prompts.size(); ++i) caches.push_back(model_.make_cache());
  std::vector<SequencePass> batch;
  for (size_t i = 0; i < prompts.size(); ++i) {
    batch.push_back({.tokens = prompts[i], .cache = &caches[i], .logits = LogitsRows::all, .exit_after = exits[i]});
  }
  const std::span<const float> rows = model_.forward(batch);
  const std::vector<float> together(rows.begin(), rows.end());
  size_t at = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    KvCache cache = model_.make_cache();
    SequencePass alone = batch[i];
    alone.cache = &cache;
    const std::span<const float> own = model_.forward({&alone, 1});
    EXPECT_TRUE(std::ranges::equal(own, std::span(together).subspan(at, own.size()))) << i;
    at += own.size();
    for (int64_t layer = 0; layer < 3; ++layer) {
      const bool ran = exits[i] == 0 || layer < exits[i];
      EXPECT_EQ(caches[i].layers[layer].entries(0), ran ? static_cast<int64_t>(prompts[i].size()) : 0);
    }
  }
  EXPECT_EQ(at, together.size());
}

TEST_F(EarlyExit, DraftsAndAcceptsAsTransformersDoes) { testing::expect_golden_rounds("early_exit"); }

}  // namespace
}  // namespace kvarena
