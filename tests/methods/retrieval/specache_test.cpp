// SpeCache: its algorithms restated in float64, what they must equal at their limits, and links that fail.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "harness/cache/attend_plan.h"
#include "harness/cache/overlay_view.h"
#include "harness/core/error.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/session/session.h"
#include "harness/method/registry.h"
#include "harness/storage/hierarchy.h"
#include "tests/methods/retrieval/specache_reference.h"
#include "tests/support/decoding.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::Decoded;
using testing::tiny_config;
using testing::tiny_model;
using testing::tiny_prompt;

using testing::Expected;
using testing::Model64;
using testing::SpeCache64;

json low_bit_copy() { return {{"name", "kivi"}, {"bits", 1}, {"group_size", 32}, {"residual_length", 32}}; }

json specache(int64_t k, bool speculative = true) {
  return {{"name", "specache"}, {"k", k}, {"copy", low_bit_copy()}, {"speculative", speculative}};
}

class SpeCacheTest : public ::testing::Test {
 protected:
  std::unique_ptr<Session> start(const Prefill& prompt, const Method& method, Decoded& decoded, int64_t new_tokens) {
    return testing::start_noted(model_, prompt, method, decoded.logits, {.stop = {.max_new_tokens = new_tokens}});
  }
  Decoded run(const Prefill& prompt, const json& spec, int64_t new_tokens = 48) {
    Decoded decoded = testing::decode(model_, prompt, spec, new_tokens);
    EXPECT_EQ(decoded.failure, "");
    return decoded;
  }

  Transformer model_ = tiny_model(1, {.weights = DType::f32, .cache = DType::f32});
};

void expect_near(const Decoded& found, const Expected& expected) {
  ASSERT_EQ(found.tokens, expected.tokens);
  ASSERT_EQ(found.logits.size(), expected.logits.size());
  for (size_t step = 0; step < found.logits.size(); ++step) {
    for (size_t i = 0; i < found.logits[step].size(); ++i) {
      ASSERT_NEAR(found.logits[step][i], expected.logits[step][i], 2e-3) << "step " << step << " token " << i;
    }
  }
}

TEST_F(SpeCacheTest, DecodesAsItsAlgorithmsSayInFloat64) {
  const Model64 reference(tiny_config());
  const auto codec = make_method(low_bit_copy(), "test");
  for (const uint64_t seed : {3, 4}) {
    const std::vector<int32_t> prompt = tiny_prompt(150, seed);
    SCOPED_TRACE(fmt::format("prompt of seed {}", seed));
    expect_near(run(prefill(model_, prompt, {}), specache(12), 44),
                SpeCache64(reference, *codec, 12).speculative(prompt, 44));
  }
}

TEST_F(SpeCacheTest, WithoutSpeculationAttentionIsRecomputedWithItsOwnTopK) {
  const Model64 reference(tiny_config());
  const auto codec = make_method(low_bit_copy(), "test");
  const std::vector<int32_t> prompt = tiny_prompt(150, 5);
  expect_near(run(prefill(model_, prompt, {}), specache(12, false), 44),
              SpeCache64(reference, *codec, 12).recomputing(prompt, 44));
}

TEST_F(SpeCacheTest, AKThatCoversEverythingDecodesAsFullKv) {
  const Prefill prompt = prefill(model_, tiny_prompt(230), {});
  const Decoded full = run(prompt, {{"name", "full"}});
  for (const bool speculative : {true, false}) {
    const Decoded all = run(prompt, specache(1000, speculative));
    EXPECT_EQ(all.tokens, full.tokens);
    for (size_t step = 0; step < full.logits.size(); ++step) {
      for (size_t i = 0; i < full.logits[step].size(); ++i) {
        ASSERT_NEAR(all.logits[step][i], full.logits[step][i], 1e-4) << "step " << step;
      }
    }
  }
}

TEST_F(SpeCacheTest, AKOfZeroIsTheCodecBitForBit) {
  const Prefill prompt = prefill(model_, tiny_prompt(230), {});
  const Decoded codec = run(prompt, low_bit_copy());
  for (const bool speculative : {true, false}) {
    const Decoded none = run(prompt, specache(0, speculative));
    EXPECT_EQ(none.tokens, codec.tokens);
    EXPECT_EQ(none.logits, codec.logits);
    EXPECT_EQ(none.activity.traffic.loaded_bytes, 0);
  }
}

TEST_F(SpeCacheTest, EveryCodecCanBeTheCopy) {
  const Prefill prompt = prefill(model_, tiny_prompt(230), {});
  const Decoded full = run(prompt, {{"name", "full"}});
  for (const char* codec : {"int8", "turboquant", "kvquant", "gear", "qserve_kv4", "quarot_kv"}) {
    const Decoded all = run(prompt, {{"name", "specache"}, {"k", 1000}, {"copy", {{"name", codec}}}});
    EXPECT_EQ(all.tokens, full.tokens) << codec;
  }
}

TEST_F(SpeCacheTest, BytesLieWhereTheyAreSaidToLie) {
  const int64_t n = 230;
  const int64_t new_tokens = 20;
  const Prefill prompt = prefill(model_, tiny_prompt(n), {});
  const Decoded codec = run(prompt, low_bit_copy(), new_tokens);
  const Decoded found = run(prompt, specache(16), new_tokens);
  const ModelConfig config = tiny_config();
  const int64_t entry = 2 * config.kv_heads * config.head_dim * 4;
  // The exact cache is elsewhere, but for the entries that come back for a step, with their indices and positions.
  const int64_t fetched = 16 * config.layers * entry;
  EXPECT_GE(found.resident_bytes, codec.resident_bytes + fetched);
  EXPECT_LE(found.resident_bytes, codec.resident_bytes + fetched + fetched / 8);
  EXPECT_GE(found.peak_host_bytes, (n + new_tokens - 1) * config.layers * entry);
  ASSERT_EQ(found.tier_bytes.size(), static_cast<size_t>(new_tokens + 1));  // the prompt, pre-decoding, the steps
  EXPECT_GE(found.tier_bytes.front().host, n * config.layers * entry);
  EXPECT_GE(found.tier_bytes.back().host, (n + new_tokens - 1) * config.layers * entry);
  EXPECT_EQ(found.tier_bytes.front().device, codec.resident_bytes);
  EXPECT_EQ(found.tier_bytes.front().disk, 0);
  EXPECT_EQ(codec.tier_bytes.size(), static_cast<size_t>(new_tokens));  // the prompt and the steps
  EXPECT_EQ(codec.tier_bytes.back().host, 0);
  // The prompt and each fed token once; k entries a layer for each of the passes after the pre-decoding one.
  EXPECT_EQ(found.activity.traffic.offloaded_bytes, (n + new_tokens - 1) * config.layers * entry);
  EXPECT_EQ(found.activity.traffic.loaded_bytes, (new_tokens - 1) * 16 * config.layers * entry);
  int64_t loaded = 0;
  for (const Traffic& pass : found.traffic) loaded += pass.loaded_bytes;
  EXPECT_EQ(loaded, found.activity.traffic.loaded_bytes);
  EXPECT_EQ(found.traffic.size(), static_cast<size_t>(new_tokens - 1));  // the pre-decoding pass moves nothing
}

TEST_F(SpeCacheTest, OnlyWhatWasNotChosenAStepBeforeIsFetched) {
  const int64_t n = 230;
  const Prefill prompt = prefill(model_, tiny_prompt(n), {});
  const ModelConfig config = tiny_config();
  const int64_t entry = 2 * config.kv_heads * config.head_dim * 4;
  for (const bool speculative : {true, false}) {
    for (const int64_t k : {16, 1000}) {
      json spec = specache(k, speculative);
      const Decoded all = run(prompt, spec);
      spec["elastic"] = true;
      const Decoded difference = run(prompt, spec);
      EXPECT_EQ(difference.tokens, all.tokens);
      EXPECT_EQ(difference.logits, all.logits);
      EXPECT_LT(difference.activity.traffic.loaded_bytes, all.activity.traffic.loaded_bytes);
      // Without a guess C_K comes and goes within a pass, unless it stays for what the next one chooses again.
      const int64_t chosen = std::min<int64_t>(k, n / 32 * 32);
      const int64_t held = chosen * config.layers * (entry + config.kv_heads * static_cast<int64_t>(sizeof(int32_t)));
      EXPECT_EQ(difference.resident_bytes - all.resident_bytes, speculative ? 0 : held);
      if (k == 16) continue;
      // Everything is chosen: the prompt's packed part once, then each block of 32 when it has been packed.
      EXPECT_EQ(difference.activity.traffic.loaded_bytes % (32 * config.layers * entry), 0);
      EXPECT_LE(difference.activity.traffic.loaded_bytes, (n + 48) * config.layers * entry);
    }
  }
}

TEST_F(SpeCacheTest, SharedPassesChangeNothing) {
  const auto with = make_method(specache(16), "test");
  const auto without = make_method(specache(16, false), "test");
  const auto full = make_method({{"name", "full"}}, "test");
  const Method* const methods[] = {with.get(), full.get(), without.get(), with.get()};
  std::vector<Prefill> prompts;
  std::vector<Decoded> together(4);
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Session*> running;
  for (size_t i = 0; i < 4; ++i)
    prompts.push_back(prefill(model_, tiny_prompt(90 + 60 * static_cast<int64_t>(i), i), {}));
  for (size_t i = 0; i < 4; ++i) {
    sessions.push_back(start(prompts[i], *methods[i], together[i], 30 + static_cast<int64_t>(i)));
    running.push_back(sessions.back().get());
  }
  run_together(model_, running);
  for (size_t i = 0; i < 4; ++i) {
    Decoded alone;
    const auto session = start(prompts[i], *methods[i], alone, 30 + static_cast<int64_t>(i));
    Session* const one[] = {session.get()};
    run_together(model_, one);
    EXPECT_EQ(sessions[i]->tokens, session->tokens) << i;
    EXPECT_EQ(together[i].logits, alone.logits) << i;
  }
}

TEST_F(SpeCacheTest, TheEndOfTheWindowIsReached) {
  ModelConfig config = tiny_config();
  config.max_position = 120;
  Transformer model(config, testing::RandomCheckpoint(testing::llama_tensors(config), 1), {});
  const Prefill prompt = prefill(model, tiny_prompt(100), {});
  const auto method = make_method(specache(8), "test");
  const auto session = start_session(model, prompt, *method, {.stop = {.max_new_tokens = 21}});
  Session* const one[] = {session.get()};
  run_together(model, one);
  EXPECT_EQ(session->tokens.size(), 21U);
}

/// The layer's entries with random queries: probabilities of the view sum to one with the queries' own.
TEST(OverlayViewTest, CountsEveryEntryOnce) {
  const LayerShape shape{.q_heads = 4, .kv_heads = 2, .head_dim = 32, .dtype = DType::f32};
  const RandomStream random(9, "entries");
  const auto draw = [&](int64_t i) { return static_cast<float>(2 * random.uniform(static_cast<uint64_t>(i)) - 1); };
  const int64_t n = 200;
  std::vector<float> keys(static_cast<size_t>(n * 64));
  for (int64_t i = 0; i < n * 64; ++i) keys[i] = 3 * draw(i);
  LayerCache cache(shape, std::make_shared<MemoryLedger>());
  cache.append(keys.data(), keys.data(), n, 64, 0);
  const EntrySegment exact_all = [&] {
    EntrySegment all(shape, std::make_shared<MemoryLedger>());
    all.append_entries(cache.tail(), 0, n);
    return all;
  }();
  const auto codec = make_method(low_bit_copy(), "test");
  Activity activity;
  LayerContext context{.layer = 0, .layers = 1, .cache = cache, .activity = activity};
  codec->after_append(context);
  const int64_t packed = cache.packed().front()->entries(0);
  ASSERT_GT(packed, 100);

  for (const int64_t k : {int64_t{0}, int64_t{1}, int64_t{17}, packed}) {
    EntryLists replaced(2);
    EntrySegment exact(shape, std::make_shared<MemoryLedger>());
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t i = 0; i < k; ++i) replaced[h].push_back(static_cast<int32_t>(k == packed ? i : i * 5 + h));
      const std::vector<float> all = [&] {
        std::vector<float> rows(static_cast<size_t>(n * 32));
        exact_all.read(h, rows.data(), nullptr);
        return rows;
      }();
      std::vector<float> rows;
      for (const int32_t i : replaced[h]) rows.insert(rows.end(), all.begin() + i * 32, all.begin() + (i + 1) * 32);
      exact.append_to_head(h, replaced[h], rows.data(), rows.data(), 32);
    }
    const OverlayView view(cache, replaced, exact);
    std::vector<float> q(128);
    for (int64_t i = 0; i < 128; ++i) q[i] = 2 * draw(100000 + i);
    const LayerQueries queries{.q = q.data(), .q_len = 1, .q_stride = 128, .position = n - 1};
    std::vector<float> memory(128 + 8);
    kernels::AttentionState state{.out = memory.data(), .max = memory.data() + 128, .sum = memory.data() + 132};
    kernels::init_attention(state, 1, 4, 32);
    attend(plan_of(view, queries), state);
    std::vector<float> lse(4);
    kernels::finish_attention(state, 1, 4, 32, lse.data());
    std::vector<float> sums(static_cast<size_t>(4 * n));
    add_probabilities(plan_of(view, queries), lse.data(), sums.data(), n);
    std::vector<float> seen(static_cast<size_t>(n * 32));
    for (int64_t h = 0; h < 4; ++h) {
      EXPECT_NEAR(std::accumulate(sums.begin() + h * n, sums.begin() + (h + 1) * n, 0.0), 1.0, 1e-5) << "k " << k;
      view.read(h / 2, nullptr, seen.data());
      for (int64_t c = 0; c < 32; ++c) {
        double expected = 0;
        for (int64_t i = 0; i < n; ++i) expected += static_cast<double>(sums[h * n + i]) * seen[i * 32 + c];
        EXPECT_NEAR(memory[h * 32 + c], expected, 1e-5) << "k " << k;
      }
    }
    std::vector<int32_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    EXPECT_EQ(view.positions(1), order);
  }
}

// ---- Links that fail ------------------------------------------------------------------------------------------------

std::shared_ptr<const storage::Hierarchy> machine(const storage::TierSettings& tier) {
  return std::make_shared<const storage::Hierarchy>(std::vector{tier});
}

class SpeCacheFaults : public SpeCacheTest {
 protected:
  /// One request on tiers with the given settings beside one with full KV; returns why the first ended.
  std::string failure_beside_another(const storage::TierSettings& tier, json spec) {
    const auto facts = model_facts(model_, {}, machine(tier));
    const Prefill prompt = prefill(model_, tiny_prompt(200), {}, kPrefillChunk, facts);
    const auto method = make_method(spec, "test");
    const auto full = make_method({{"name", "full"}}, "test");
    Decoded ignored;
    Decoded beside;
    auto guilty = start(prompt, *method, ignored, 30);
    auto other = start(prompt, *full, beside, 30);
    Session* const sessions[] = {guilty.get(), other.get()};
    run_together(model_, sessions);
    EXPECT_EQ(other->tokens, run(prompt, {{"name", "full"}}, 30).tokens);
    EXPECT_EQ(other->failure, "");
    std::string failure = guilty->failure;
    EXPECT_EQ(guilty->finish, failure.empty() ? FinishReason::length : FinishReason::failed);
    guilty.reset();
    EXPECT_EQ(facts->tiers->storage(tier.tier).used(), 0);  // nothing leaks
    return failure;
  }
};

TEST_F(SpeCacheFaults, ALoadThatFailsEndsItsRequestAlone) {
  for (const bool speculative : {true, false}) {
    const std::string failure = failure_beside_another({.tier = Tier::host,
                                                        .link = storage::link_named("real", "test"),
                                                        .fault =
                                                            [](int64_t transfer) {
                                                              if (transfer == 17)
                                                                throw UserError("host tier: the memory is gone");
                                                            }},
                                                       specache(16, speculative));
    EXPECT_EQ(failure, "host tier: the memory is gone");
  }
}

TEST_F(SpeCacheFaults, ASlowLinkIsWaitedFor) {
  EXPECT_EQ(failure_beside_another({.tier = Tier::host,
                                    .link = storage::link_named("real", "test"),
                                    .fault =
                                        [](int64_t transfer) {
                                          if (transfer % 20 == 3)
                                            std::this_thread::sleep_for(std::chrono::milliseconds(5));
                                        }},
                                   specache(16)),
            "");
}

TEST_F(SpeCacheFaults, ATierWithoutRoomForThePromptRefusesTheRequest) {
  const auto facts = model_facts(model_, {}, machine({.tier = Tier::host, .capacity_bytes = 100000}));
  const Prefill prompt = prefill(model_, tiny_prompt(200), {}, kPrefillChunk, facts);
  const auto method = make_method(specache(16), "test");
  EXPECT_THROW((void)start_session(model_, prompt, *method, {.stop = {.max_new_tokens = 4}}), storage::TierFull);
  EXPECT_EQ(facts->tiers->storage(Tier::host).used(), 0);
}

TEST_F(SpeCacheFaults, ATierThatFillsUpWhileDecodingEndsItsRequestAlone) {
  const ModelConfig config = tiny_config();
  const int64_t prompt_bytes = 200 * config.layers * 2 * config.kv_heads * config.head_dim * 4;
  const std::string failure =
      failure_beside_another({.tier = Tier::host, .capacity_bytes = prompt_bytes + 1000}, specache(16));
  EXPECT_NE(failure.find("host tier: found"), std::string::npos) << failure;
}

TEST_F(SpeCacheFaults, TheExactCacheMayLieInFiles) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("kvarena_specache_{}", ::getpid());
  json spec = specache(16);
  const Prefill on_host = prefill(model_, tiny_prompt(200), {});
  const Decoded expected = run(on_host, spec, 30);
  spec["tier"] = "disk";
  {
    const auto facts = model_facts(
        model_, {}, machine({.tier = Tier::disk, .link = storage::link_named("real", "test"), .folder = folder}));
    const Prefill prompt = prefill(model_, tiny_prompt(200), {}, kPrefillChunk, facts);
    const Decoded found = run(prompt, spec, 30);
    EXPECT_EQ(found.logits, expected.logits);
    EXPECT_TRUE(std::filesystem::is_empty(folder));
  }
  std::filesystem::remove_all(folder);
}

TEST_F(SpeCacheFaults, AFileThatIsCutShortEndsItsRequestAlone) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("kvarena_specache_cut_{}", ::getpid());
  json spec = specache(16);
  spec["tier"] = "disk";
  const auto method = make_method(spec, "test");
  {
    const auto facts = model_facts(
        model_, {}, machine({.tier = Tier::disk, .link = storage::link_named("real", "test"), .folder = folder}));
    const Prefill prompt = prefill(model_, tiny_prompt(200), {}, kPrefillChunk, facts);
    const Decoded expected = run(prompt, spec, 30);
    Decoded ignored;
    Decoded beside;
    auto guilty = start(prompt, *method, ignored, 30);
    for (const auto& file : std::filesystem::directory_iterator(folder)) std::filesystem::resize_file(file.path(), 100);
    auto other = start(prompt, *method, beside, 30);
    Session* const sessions[] = {guilty.get(), other.get()};
    run_together(model_, sessions);
    EXPECT_EQ(guilty->finish, FinishReason::failed);
    EXPECT_NE(guilty->failure.find((folder / "block-").string()), std::string::npos) << guilty->failure;
    EXPECT_EQ(other->failure, "");
    EXPECT_EQ(beside.logits, expected.logits);
    guilty.reset();
    other.reset();
    EXPECT_TRUE(std::filesystem::is_empty(folder));
    EXPECT_EQ(facts->tiers->storage(Tier::disk).used(), 0);
  }
  std::filesystem::remove_all(folder);
}

TEST_F(SpeCacheFaults, ASlowDiskIsWaitedFor) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("kvarena_specache_slow_{}", ::getpid());
  json spec = specache(16);
  const Decoded expected = run(prefill(model_, tiny_prompt(200), {}), spec, 30);
  spec["tier"] = "disk";
  {
    const auto slow = [](int64_t transfer) {
      if (transfer % 20 == 3) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    };
    const auto facts = model_facts(
        model_, {},
        machine({.tier = Tier::disk, .link = storage::link_named("real", "test"), .folder = folder, .fault = slow}));
    const Prefill prompt = prefill(model_, tiny_prompt(200), {}, kPrefillChunk, facts);
    const Decoded found = run(prompt, spec, 30);
    EXPECT_EQ(found.logits, expected.logits);
    double stalled = 0;
    for (const Traffic& pass : found.traffic) stalled += pass.stalled_seconds;
    EXPECT_GT(stalled, 0.0);
    EXPECT_EQ(facts->tiers->storage(Tier::disk).used(), 0);
  }
  std::filesystem::remove_all(folder);
}

TEST(SpeCacheSettings, TheCopyMustBeACodec) {
  const auto problems =
      check_method({{"name", "specache"}, {"copy", {{"name", "snapkv"}, {"keep", 0.5}}}}, "methods[0]");
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].find("methods[0].copy.name: found \"snapkv\""), std::string::npos) << problems[0];
}

}  // namespace
}  // namespace kvarena
