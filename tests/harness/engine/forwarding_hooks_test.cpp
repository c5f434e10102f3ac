// Decorators of hooks hand on every call that they do not change.

#include "harness/engine/session/forwarding_hooks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "harness/core/error.h"
#include "harness/engine/session/offloaded_cache.h"
#include "harness/engine/session/selection_meter.h"
#include "tests/support/hybrid_model.h"
#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

constexpr LayerShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = DType::f32};

/// Notes what it is called with; every answer differs from that of hooks that do nothing.
class Recorder final : public AttentionHooks, private kernels::AttentionReader {
 public:
  [[nodiscard]] HookAccess reach() const override { return HookAccess::attention; }
  void complete(KvCache& /*cache*/) override { calls.emplace_back("complete"); }
  void before_pass(KvCache& /*cache*/, std::span<const int32_t> /*tokens*/) override {
    calls.emplace_back("before_pass");
  }
  void before_attention(int64_t /*layer*/, LayerCache& /*cache*/, const LayerQueries& /*queries*/) override {
    calls.emplace_back("before_attention");
  }
  [[nodiscard]] kernels::AttentionReader* reader(int64_t /*layer*/, const LayerCache& /*cache*/,
                                                 const LayerQueries& /*queries*/) override {
    calls.emplace_back("reader");
    return this;
  }
  void after_attention(int64_t /*layer*/, LayerCache& /*cache*/, const LayerQueries& /*queries*/,
                       const float* /*lse*/) override {
    calls.emplace_back("after_attention");
  }
  [[nodiscard]] bool wants_hidden() const override { return true; }
  void after_layer(int64_t /*layer*/, const float* /*rows*/, int64_t /*count*/, int64_t /*hidden_size*/) override {
    calls.emplace_back("after_layer");
  }

  std::vector<std::string> calls;

 private:
  void read(const kernels::ProbabilityRows& /*rows*/) override {}
};

/// A cache with `n` entries in each layer.
KvCache cache_of(int64_t n, int64_t layers = 1) {
  KvCache cache(layers, kShape);
  const std::vector<float> rows = testing::random_floats(n * 32, "rows");
  for (LayerCache& layer : cache.layers) layer.append(rows.data(), rows.data(), n, 32, 0);
  cache.length = n;
  return cache;
}

/// Calls everything that a pass calls of `hooks`, and expects `behind`, the hooks behind them, to hear of it.
void expect_forwarded(AttentionHooks& hooks, const Recorder& behind) {
  KvCache cache = cache_of(9);
  const std::vector<int32_t> tokens = {3};
  const std::vector<float> q = testing::random_floats(64, "q");
  const LayerQueries queries{.q = q.data(), .q_len = 1, .q_stride = 64, .position = 8};
  EXPECT_EQ(hooks.reach(), HookAccess::attention);
  EXPECT_TRUE(hooks.wants_hidden());
  hooks.complete(cache);
  hooks.before_pass(cache, tokens);
  hooks.before_attention(0, cache.layers[0], queries);
  EXPECT_NE(hooks.reader(0, cache.layers[0], queries), nullptr);
  hooks.after_attention(0, cache.layers[0], queries, nullptr);
  hooks.after_layer(0, q.data(), 1, 64);
  EXPECT_EQ(behind.calls, (std::vector<std::string>{"complete", "before_pass", "before_attention", "reader",
                                                    "after_attention", "after_layer"}));
}

TEST(ForwardingHooks, HandOnEveryCall) {
  Recorder recorder;
  ForwardingHooks hooks(&recorder);
  expect_forwarded(hooks, recorder);
}

TEST(ForwardingHooks, DoNothingBeforeNobody) {
  ForwardingHooks hooks;
  KvCache cache = cache_of(2);
  EXPECT_EQ(hooks.reach(), HookAccess::nothing);
  EXPECT_FALSE(hooks.wants_hidden());
  hooks.complete(cache);
  hooks.before_pass(cache, {});
  hooks.before_attention(0, cache.layers[0], {});
  EXPECT_EQ(hooks.reader(0, cache.layers[0], {}), nullptr);
  hooks.after_attention(0, cache.layers[0], {}, nullptr);
  hooks.after_layer(0, nullptr, 0, 0);
}

TEST(ForwardingHooks, AMeterHandsOnEveryCall) {
  Recorder recorder;
  SelectionMeter meter(cache_of(8));
  expect_forwarded(meter.watch(recorder), recorder);
  EXPECT_EQ(meter.steps().size(), 1U);
}

TEST(ForwardingHooks, AReloadHandsOnEveryCall) {
  Recorder recorder;
  KvCache full = cache_of(8);
  const auto tiers =
      std::make_shared<storage::Hierarchy>(std::vector<storage::TierSettings>{{.tier = Tier::host, .link = {}}});
  OffloadedCache offloaded(full, tiers, Tier::host);
  ReloadHooks hooks(offloaded);
  hooks.forward_to(&recorder);
  expect_forwarded(hooks, recorder);
}

/// Each layer takes a quarter of a second over the link, a pass over none of them: only one that waits for all before
/// it begins would find the last one there.
TEST(ForwardingHooks, APassBeginsBeforeTheLastLayerHasCome) {
  KvCache full = cache_of(64, 4);
  const int64_t bytes = full.bytes();
  const auto tiers = std::make_shared<storage::Hierarchy>(std::vector<storage::TierSettings>{
      {.tier = Tier::host, .link = {.name = "slow", .bytes_per_s = static_cast<double>(bytes)}}});
  OffloadedCache offloaded(full, tiers, Tier::host);
  ReloadHooks hooks(offloaded);
  offloaded.begin_reload();
  const std::vector<int32_t> tokens = {3};
  hooks.before_pass(full, tokens);
  EXPECT_EQ(full.layers[0].entries(0), 64) << "the first layer is there";
  EXPECT_FALSE(offloaded.arrived());
  for (int64_t layer = 0; layer < 4; ++layer) {
    EXPECT_EQ(full.layers[layer].entries(0), 64) << layer;
    EXPECT_EQ(offloaded.arrived(), layer == 3) << layer;
    hooks.after_layer(layer, nullptr, 0, 0);
  }
}

/// Has a link bring a layer when the one before has attended, and no sooner.
class Paced final : public ForwardingHooks {
 public:
  [[nodiscard]] storage::HierarchyPtr tiers() {
    const auto fault = [this](int64_t layer) {
      std::unique_lock lock(mutex_);
      const auto attended = [&] { return attended_ >= layer; };
      if (!changed_.wait_for(lock, std::chrono::seconds(20), attended)) throw UserError("nobody attends");
    };
    return std::make_shared<storage::Hierarchy>(std::vector<storage::TierSettings>{
        {.tier = Tier::host, .link = storage::link_named("real", "test"), .fault = fault}});
  }
  void after_attention(int64_t layer, LayerCache& /*cache*/, const LayerQueries& /*queries*/,
                       const float* /*lse*/) override {
    const std::lock_guard lock(mutex_);
    attended_ = layer + 1;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t attended_ = 0;
};

/// The first sequence's.
std::vector<float> logits_of(Transformer& model, const std::vector<SequencePass>& batch) {
  const std::span<const float> logits = model.forward(batch);
  return {logits.begin(), logits.begin() + model.config().vocab_size};
}

/// Also beside a sequence that leaves after the first layer, and behind layers with states.
TEST(ForwardingHooks, ALayerComesWhileTheOneBeforeIsComputed) {
  const std::vector<int32_t> prompt = testing::tiny_prompt(90), next = {3};
  for (const bool hybrid : {false, true}) {
    Transformer model = hybrid ? testing::hybrid_model() : testing::tiny_model();
    for (const bool exits : {false, true}) {
      SCOPED_TRACE(std::to_string(hybrid) + std::to_string(exits));
      KvCache full = model.make_cache(), other = model.make_cache();
      (void)logits_of(model, {{.tokens = prompt, .cache = &full}});
      KvCache stays = full.clone();
      const std::vector<float> want = logits_of(model, {{.tokens = next, .cache = &stays}});
      Paced link;
      OffloadedCache offloaded(full, link.tiers(), Tier::host);
      ReloadHooks hooks(offloaded);
      hooks.forward_to(&link);
      offloaded.begin_reload();
      const std::vector<SequencePass> batch = {{.tokens = next, .cache = &full, .hooks = &hooks},
                                               {.tokens = prompt, .cache = &other, .exit_after = exits ? 1 : 0}};
      EXPECT_EQ(logits_of(model, batch), want);
    }
  }
}

}  // namespace
}  // namespace kvarena
