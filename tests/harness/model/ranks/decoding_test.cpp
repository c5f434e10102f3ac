// Sessions over a model in shares decide what they decide over a whole one.

#include "tests/support/decoding.h"

#include <gtest/gtest.h>

#include <cstring>

#include "harness/engine/session/prefill.h"
#include "harness/model/ranks/rendezvous.h"
#include "tests/support/golden_model.h"
#include "tests/support/rank_threads.h"
#include "tests/support/temporary_folder.h"

namespace kvarena {
namespace {

using kernels::DType;
using nlohmann::json;
using testing::golden_model;
using testing::RankThreads;

constexpr TransformerOptions kHalf{.weights = DType::bf16, .cache = DType::bf16};

class SplitSessions : public ::testing::TestWithParam<const char*> {};

TEST_P(SplitSessions, DecodingAndVerifiedDraftsGiveTheSameTokensLogitsAndRounds) {
  const testing::GoldenModel golden = golden_model(GetParam());
  const auto prompt = golden.fixture["prompt"].get<std::vector<int32_t>>();
  const json verified = {{"name", "vericache"}, {"draft_length", 3}, {"drafter", {{"name", "knorm"}, {"keep", 0.5}}}};
  const testing::TemporaryFolder folder;
  const testing::ChannelMaker channels = [file = folder / "meeting"](const Share& share) {
    return group_channel(std::make_shared<Rendezvous>(RendezvousAddress{.file = file}, share, std::chrono::seconds(60)),
                         {});
  };
  RankThreads others(2, channels, golden.config, DType::bf16, [&] { return golden.checkpoint(); });
  Transformer split(golden.config, golden.checkpoint(), kHalf, channels({.rank = 0, .ranks = 2}));
  Transformer alone = golden.transformer(kHalf);
  for (const json& method : {json{{"name", "full"}}, verified}) {
    const auto answer = [&](Transformer& model) {
      const Needs needs = make_method(method, "test")->needs();
      return testing::decode(model, prefill(model, prompt, needs, 7), method, 10);
    };
    const testing::Decoded expected = answer(alone);
    const testing::Decoded got = answer(split);
    EXPECT_EQ(got.failure, "");
    EXPECT_EQ(got.tokens, expected.tokens) << method.dump();
    EXPECT_EQ(got.rounds.size(), expected.rounds.size());
    ASSERT_EQ(got.logits.size(), expected.logits.size());
    for (size_t i = 0; i < got.logits.size(); ++i) {
      ASSERT_EQ(got.logits[i].size(), expected.logits[i].size());
      EXPECT_EQ(std::memcmp(got.logits[i].data(), expected.logits[i].data(), got.logits[i].size() * sizeof(float)), 0)
          << method.dump() << ", row " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SplitSessions, ::testing::Values("llama31", "qwen2", "qwen3_moe", "deepseek_v3"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace kvarena
