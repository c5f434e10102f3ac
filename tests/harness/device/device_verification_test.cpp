// Drafts verified on a device (emulated here): whoever drafted, every bit is full KV's.
#include <gtest/gtest.h>

#include "harness/engine/model_facts.h"
#include "harness/engine/serving/batch_run.h"
#include "harness/storage/hierarchy.h"
#include "tests/support/decoding.h"
#include "tests/support/offloaded_model.h"

namespace kvarena::device {
namespace {

using nlohmann::json;
using testing::decode;
using testing::Decoded;
using testing::tiny_prompt;

/// Full caches that lie behind the device between verifications are attended to there when they have come back.
TEST(DeviceVerification, VerificationOverParkedCachesIsLosslessBitForBit) {
  Offloaded offloaded;
  auto tiers = std::make_shared<storage::Hierarchy>(
      std::vector<storage::TierSettings>{{.tier = Tier::host, .link = {.name = "test", .bytes_per_s = 500e6}}});
  const Prefill prompt = prefill(offloaded.model(), tiny_prompt(90), Needs{.window = 64}, kPrefillChunk,
                                 model_facts(offloaded.model(), {}, std::move(tiers)));
  const Decoded full = decode(offloaded.model(), prompt, {{"name", "full"}}, 16);
  for (const char* schedule : {"staggered", "lock_step", "sequential"}) {
    SCOPED_TRACE(schedule);
    const json drafter{{"name", "snapkv"}, {"keep", 0.5}};
    const auto method = make_method({{"name", "vericache"}, {"schedule", schedule}, {"drafter", drafter}}, "test");
    testing::Logits logits;
    SessionOptions options{.stop = {.max_new_tokens = 16}};
    options.on_logits = [&](int64_t, std::span<const float> row) { logits.emplace_back(row.begin(), row.end()); };
    const BatchRun one = run_batch(offloaded.model(), prompt, *method, options, {.requests = 1});
    EXPECT_TRUE(one.scheduled);
    EXPECT_GT(one.sessions.front()->activity.traffic.loaded_bytes, 0);
    EXPECT_EQ(one.sessions.front()->tokens, full.tokens);
    EXPECT_EQ(logits, full.logits);
    options.on_logits = {};
    const BatchRun many = run_batch(offloaded.model(), prompt, *method, options, {.requests = 3});
    for (const auto& session : many.sessions) EXPECT_EQ(session->tokens, full.tokens);
  }
  EXPECT_EQ(offloaded.device().tokens_attended_on_host(), 0);
}

TEST(DeviceVerification, VerificationIsLosslessBitForBit) {
  Offloaded offloaded;
  const Prefill prompt = prefill(offloaded.model(), tiny_prompt(90), Needs{.window = 64});
  const Decoded full = decode(offloaded.model(), prompt, {{"name", "full"}}, 16);
  const int64_t plain = offloaded.device().tokens();
  const json drafter{{"name", "snapkv"}, {"keep", 0.5}};
  const Decoded verified = decode(offloaded.model(), prompt, {{"name", "vericache"}, {"drafter", drafter}}, 16);
  EXPECT_EQ(verified.tokens, full.tokens);
  EXPECT_EQ(verified.logits, full.logits);
  EXPECT_GT(verified.activity.tokens_drafted, 0);
  EXPECT_GE(offloaded.device().tokens() - plain, 15);
}

TEST(DeviceVerification, VerificationOfTreesIsLosslessBitForBit) {
  Offloaded offloaded;
  const json spec{{"name", "eagle3"},
                  {"weights", KVARENA_SOURCE_DIR "/tests/golden/eagle3_drafter"},
                  {"draft_length", 4},
                  {"top_k", 5},
                  {"tree_tokens", 12}};
  const Needs needs = make_method(spec, "test")->needs();
  const Prefill prompt =
      prefill(offloaded.model(), tiny_prompt(500), needs, kPrefillChunk, model_facts(offloaded.model()));
  const Decoded full = decode(offloaded.model(), prompt, {{"name", "full"}}, 30);
  const Decoded verified = decode(offloaded.model(), prompt, spec, 30);
  EXPECT_EQ(verified.tokens, full.tokens);
  EXPECT_EQ(verified.logits, full.logits);
  EXPECT_GT(verified.activity.tokens_accepted, 0);
  EXPECT_EQ(offloaded.device().mirrors().uploads(), 0);  // paths that close up do not count
}

TEST(DeviceVerification, VerificationOfDraftsByTheFirstLayersIsLosslessBitForBit) {
  Offloaded offloaded;
  const Prefill prompt = prefill(offloaded.model(), tiny_prompt(90), Needs{});
  const Decoded full = decode(offloaded.model(), prompt, {{"name", "full"}}, 16);
  const int64_t plain = offloaded.device().tokens();
  const Decoded verified =
      decode(offloaded.model(), prompt, {{"name", "early_exit"}, {"draft_length", 3}, {"layers", 0.34}}, 16);
  EXPECT_EQ(verified.tokens, full.tokens);
  EXPECT_EQ(verified.logits, full.logits);
  EXPECT_GT(verified.activity.tokens_drafted, 0);
  EXPECT_GE(offloaded.device().tokens() - plain, 15 + verified.activity.tokens_drafted);
  EXPECT_EQ(offloaded.device().mirrors().uploads(), 0);
}

}  // namespace
}  // namespace kvarena::device
