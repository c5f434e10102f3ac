// Drafts verified on a device (emulated here): whoever drafted, every bit is full KV's.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "harness/cache/arriving_cache.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/serving/batch_run.h"
#include "harness/engine/session/offloaded_cache.h"
#include "harness/storage/device_tiers.h"
#include "harness/storage/hierarchy.h"
#include "tests/support/cuda/emulator.h"
#include "tests/support/decoding.h"
#include "tests/support/imported_weights.h"
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
    const int64_t received = offloaded.device().mirrors().received_bytes();
    const BatchRun one = run_batch(offloaded.model(), prompt, *method, options, {.requests = 1});
    EXPECT_TRUE(one.scheduled);
    EXPECT_GT(one.sessions.front()->activity.traffic.loaded_bytes, 0);
    EXPECT_EQ(offloaded.device().mirrors().received_bytes() - received,
              one.sessions.front()->activity.traffic.loaded_bytes);
    EXPECT_EQ(one.sessions.front()->tokens, full.tokens);
    EXPECT_EQ(logits, full.logits);
    options.on_logits = {};
    const BatchRun many = run_batch(offloaded.model(), prompt, *method, options, {.requests = 3});
    for (const auto& session : many.sessions) EXPECT_EQ(session->tokens, full.tokens);
  }
  EXPECT_EQ(offloaded.device().tokens_attended_on_host(), 0);
}

/// A link that brings a layer when the layer before has been computed, and no sooner.
class Paced {
 public:
  [[nodiscard]] std::shared_ptr<storage::Hierarchy> tiers() {
    return std::make_shared<storage::Hierarchy>(std::vector<storage::TierSettings>{
        {.tier = Tier::host,
         .link = storage::link_named("real", "test"),
         .fault =
             [this](int64_t layer) {
               std::unique_lock lock(mutex_);
               const auto there = [&] { return computed_ >= layer; };
               if (!changed_.wait_for(lock, std::chrono::seconds(60), there)) throw UserError("nobody computes");
             },
         .memory = [](int64_t bytes) { return std::make_unique<storage::PinnedStorage>(bytes); }}});
  }
  void computed(int64_t layers) {
    const std::lock_guard lock(mutex_);
    computed_ = layers;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t computed_ = 0;
};

/// Waits for the layer before, whose rows come to the host, whenever a layer is asked for.
class PacedReload final : public ForwardingHooks, public ArrivingCache {
 public:
  PacedReload(ReloadHooks& own, Paced& link, const DeviceModel& model)
      : ForwardingHooks(&own), own_(&own), link_(&link), model_(&model) {}
  [[nodiscard]] bool arriving(const KvCache& cache) const override { return own_->arriving(cache); }
  void arrive(int64_t layer) override {
    if (layer == 0) began_ = emulated_cuda::waits();
    if (layer > 0) before.push_back(model_->brought(layer - 1, 0).residual[0]);
    link_->computed(layer);
    own_->arrive(layer);
  }
  void after_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) override {
    ForwardingHooks::after_layer(layer, rows, count, hidden_size);
    shown.push_back(rows[0]);
    waited = (emulated_cuda::waits() - began_).streams;
  }
  std::vector<float> before, shown;
  long waited = 0;

 private:
  ReloadHooks* own_;
  Paced* link_;
  const DeviceModel* model_;
  emulated_cuda::Waits began_;
};

TEST(DeviceVerification, APassBeginsBeforeTheLastLayerHasCome) {
  Offloaded offloaded;
  Paced link;
  KvCache full = offloaded.model().make_cache();
  (void)fed(offloaded.model(), full, tiny_prompt(90));
  KvCache stays = full.clone();
  const std::vector<int32_t> drafts = tiny_prompt(5, 3);
  const std::vector<float> want = fed(offloaded.model(), stays, drafts);
  OffloadedCache cache(full, link.tiers(), Tier::host);
  ReloadHooks reload(cache);
  PacedReload hooks(reload, link, offloaded.device().model());
  cache.begin_reload();
  EXPECT_TRUE(cache.received());
  const SequencePass pass{.tokens = drafts, .cache = &full, .hooks = &hooks, .logits = LogitsRows::all};
  const std::span<const float> got = offloaded.model().forward({&pass, 1});
  EXPECT_EQ(std::vector<float>(got.begin(), got.end()), want);
  ASSERT_EQ(hooks.shown.size(), 3U);
  EXPECT_EQ(hooks.before, std::vector<float>(hooks.shown.begin(), hooks.shown.end() - 1));
  if (emulated_cuda::here()) {
    EXPECT_EQ(hooks.waited, 0) << "nobody waits for all that the device was given";
  }
  Traffic traffic;
  cache.offload(90, traffic);
  EXPECT_GT(traffic.loaded_bytes, 0);
  EXPECT_EQ(offloaded.device().mirrors().received_bytes(), traffic.loaded_bytes);
  EXPECT_EQ(offloaded.device().mirrors().uploads(), 0);
}

TEST(DeviceVerification, ACacheWithoutRoomForItsLayersComesWhole) {
  Offloaded offloaded(/*cache_bytes=*/100'000);
  KvCache full = offloaded.model().make_cache();
  (void)fed(offloaded.model(), full, tiny_prompt(90));
  KvCache stays = full.clone();
  const std::vector<int32_t> drafts = tiny_prompt(5, 3);
  const std::vector<float> want = fed(offloaded.model(), stays, drafts);
  OffloadedCache cache(full, std::make_shared<storage::Hierarchy>(storage::usual_tiers()), Tier::host);
  ReloadHooks reload(cache);
  cache.begin_reload();
  EXPECT_FALSE(cache.received());
  const SequencePass pass{.tokens = drafts, .cache = &full, .hooks = &reload, .logits = LogitsRows::all};
  const std::span<const float> got = offloaded.model().forward({&pass, 1});
  EXPECT_EQ(std::vector<float>(got.begin(), got.end()), want);
}

TEST(DeviceVerification, ALinksRateIsThatOfReloadsToTheDevice) {
  Offloaded offloaded;
  EXPECT_GT(reload_rate(offloaded.model(), std::make_shared<storage::Hierarchy>(storage::usual_tiers()), Tier::host),
            0);
  EXPECT_EQ(offloaded.device().mirrors().received_bytes(), int64_t{5} * 3 * (2 << 20)) << "five times, all layers";
}

TEST(DeviceVerification, AReloadThatFailsEndsItsRequestAlone) {
  Offloaded offloaded;
  auto machine = storage::usual_tiers();
  machine.front().fault = [](int64_t transfer) {
    // Behind five reloads that measure the link: the second layer of the second request.
    if (transfer == 5 * 3 + 3 + 1) throw UserError("the host lost a page");
  };
  const Prefill prompt = prefill(offloaded.model(), tiny_prompt(90), Needs{.window = 64}, kPrefillChunk,
                                 model_facts(offloaded.model(), {}, std::make_shared<storage::Hierarchy>(machine)));
  const Decoded full = decode(offloaded.model(), prompt, {{"name", "full"}}, 16);
  const json drafter{{"name", "snapkv"}, {"keep", 0.5}};
  const auto method = make_method({{"name", "vericache"}, {"schedule", "staggered"}, {"drafter", drafter}}, "test");
  const BatchRun run = run_batch(offloaded.model(), prompt, *method, {.stop = {.max_new_tokens = 16}}, {.requests = 3});
  int64_t failed = 0;
  for (const auto& session : run.sessions) {
    if (session->failure.empty()) {
      EXPECT_EQ(session->tokens, full.tokens);
      continue;
    }
    ++failed;
    EXPECT_NE(session->failure.find("the host lost a page"), std::string::npos) << session->failure;
  }
  EXPECT_EQ(failed, 1);
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
  const std::string drafter = KVARENA_SOURCE_DIR "/tests/golden/eagle3_drafter";
  const json spec{{"name", "eagle3"},
                  {"weights", testing::imported(offloaded.model(), "eagle3", drafter)},
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
