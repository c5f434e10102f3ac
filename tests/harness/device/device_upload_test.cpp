// Caches that go up to a device (emulated here) from other threads, beside passes.
#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <ranges>

#include "harness/core/error.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/reuse/reuse_prompt.h"
#include "harness/engine/session/forwarding_hooks.h"
#include "harness/engine/stored/stored_cache.h"
#include "harness/method/registry.h"
#include "tests/support/cuda/emulator.h"
#include "tests/support/offloaded_model.h"

namespace kvarena::device {
namespace {

using nlohmann::json;
using testing::tiny_prompt;

constexpr int64_t kContext = 250;

/// A stored context of a method, null for all entries, restored on the host, and the logits of a question behind it on
/// a device that gets it in the pass.
struct Restored {
  KvCache cache;
  std::vector<float> logits;

  Restored(uint64_t seed, const json& spec) : cache(testing::tiny_model(1, kF32).make_cache()) {
    Transformer host = testing::tiny_model(1, kF32);
    const auto method = spec.is_null() ? nullptr : make_method(spec, "test");
    const auto facts = model_facts(host);
    const Prefill prompt =
        prefill(host, tiny_prompt(kContext, seed), method ? method->needs() : Needs{}, kPrefillChunk, facts);
    cache = restore_cache(host, *facts, method.get(), store_cache(prompt, method.get()));
    Offloaded offloaded;
    KvCache brought = cache.clone();
    logits = fed(offloaded.model(), brought, question());
  }
  static std::vector<int32_t> question() { return tiny_prompt(7, 3); }
};

/// Bytes of a cache's copy on the device that holds most of it.
int64_t one_copy(const Offloaded& offloaded) {
  const DeviceCache whole(offloaded.device().model().shapes(), Placement::device, kContext + kDecodeHeadroom);
  return std::ranges::max(whole.bytes_by_device() | std::views::values);
}

/// Does something beside each layer of a pass, on another thread, and waits for it.
class Beside final : public ForwardingHooks {
 public:
  explicit Beside(std::function<void(int64_t layer)> work) : ForwardingHooks(nullptr), work_(std::move(work)) {}
  [[nodiscard]] HookAccess reach() const override { return HookAccess::rows; }
  void after_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) override {
    ForwardingHooks::after_layer(layer, rows, count, hidden_size);
    std::async(std::launch::async, [&] { work_(layer); }).get();
  }

 private:
  std::function<void(int64_t layer)> work_;
};

std::vector<float> fed_beside(Transformer& model, KvCache& cache, std::span<const int32_t> tokens, Beside& hooks) {
  const SequencePass pass{.tokens = tokens, .cache = &cache, .hooks = &hooks, .logits = LogitsRows::all};
  const std::span<const float> logits = model.forward({&pass, 1});
  return {logits.begin(), logits.end()};
}

TEST(DeviceUpload, ItGoesOnInTheMiddleOfAPassAndTheNextPassWaitsForItsLogitsAlone) {
  std::vector<Restored> restored;
  for (const json& spec : {json(), json{{"name", "snapkv"}, {"keep", 0.5}}, json{{"name", "kivi"}, {"bits", 4}}})
    restored.emplace_back(restored.size(), spec);
  Offloaded offloaded, alone;
  KvCache a = offloaded.model().make_cache(), b = alone.model().make_cache();
  const std::vector<int32_t> tokens = tiny_prompt(40), question = Restored::question();
  (void)fed(offloaded.model(), a, tokens);
  (void)fed(alone.model(), b, tokens);
  const auto nothing = [](int64_t) {};
  Beside idle(nothing), uploads([&](int64_t layer) { offloaded.model().upload(restored[layer].cache, 7); });
  const auto waited = [](const auto& pass) {  // 0 on a real device
    const emulated_cuda::Waits before = emulated_cuda::waits();
    pass();
    return (emulated_cuda::waits() - before).streams;
  };
  std::vector<float> want, got;
  const long usual = waited([&] { want = fed_beside(alone.model(), b, question, idle); });
  EXPECT_EQ(waited([&] { got = fed_beside(offloaded.model(), a, question, uploads); }), usual);
  EXPECT_EQ(got, want);
  const int64_t uploaded = offloaded.device().mirrors().uploads();
  EXPECT_EQ(uploaded, 3);
  const long logits = waited([&] { (void)fed(offloaded.model(), a, question); });
  for (Restored& one : restored) {
    EXPECT_EQ(waited([&] { got = fed(offloaded.model(), one.cache, question); }), logits);
    EXPECT_EQ(got, one.logits);
  }
  EXPECT_EQ(offloaded.device().mirrors().uploads(), uploaded);
  EXPECT_EQ(offloaded.device().tokens_attended_on_host(), 0);
}

TEST(DeviceUpload, WhatAPassUsesStaysAndWhatNobodyUsesMakesRoom) {
  Restored restored(1, json());
  const int64_t one = one_copy(Offloaded());
  Offloaded offloaded(one + one / 2), alone;
  const DeviceMirrors& mirrors = offloaded.device().mirrors();
  KvCache a = offloaded.model().make_cache(), b = alone.model().make_cache();
  const std::vector<int32_t> tokens = tiny_prompt(40), question = Restored::question();
  Beside hooks([&](int64_t) { offloaded.model().upload(restored.cache, 7); });
  Beside idle([](int64_t) {});
  const std::vector<float> want = fed_beside(alone.model(), b, tokens, idle);
  EXPECT_EQ(fed_beside(offloaded.model(), a, tokens, hooks), want);
  EXPECT_EQ(mirrors.uploads(), 0) << "there is no room beside the pass";
  EXPECT_EQ(mirrors.evictions(), 0);
  offloaded.model().upload(restored.cache, 7);
  EXPECT_EQ(mirrors.uploads(), 1);
  EXPECT_EQ(mirrors.evictions(), 1);
  EXPECT_EQ(fed(offloaded.model(), restored.cache, question), restored.logits);
  EXPECT_EQ(mirrors.uploads(), 1);
  EXPECT_EQ(fed(offloaded.model(), a, question), fed(alone.model(), b, question)) << "and comes back";
}

/// Freeing waits for all streams, also for one on which another thread's cache is asked for.
TEST(DeviceUpload, NobodyWaitsForACopyThatIsBeingFreed) {
  if (!emulated_cuda::here()) GTEST_SKIP() << emulated_cuda::kOnlyHere;
  Restored restored(1, json());
  const int64_t one = one_copy(Offloaded());
  Offloaded offloaded(one + one / 2);
  KvCache a = offloaded.model().make_cache();
  (void)fed(offloaded.model(), a, tiny_prompt(40));
  const kernels::CudaQueue queue;
  std::future<void> other;
  bool goes_on = false;
  emulated_cuda::set_lazy(true);
  emulated_cuda::start(queue.stream(), [&] {
    other = std::async(std::launch::async, [&] { (void)a.clone(); });
    goes_on = other.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  });
  offloaded.model().upload(restored.cache, 7);
  emulated_cuda::set_lazy(false);
  ASSERT_TRUE(other.valid());
  other.wait();
  EXPECT_TRUE(goes_on);
  EXPECT_EQ(offloaded.device().mirrors().evictions(), 1);
}

TEST(DeviceUpload, ADeviceThatIsFullRefusesTheUploadAlone) {
  if (!emulated_cuda::here()) GTEST_SKIP() << emulated_cuda::kOnlyHere;
  Restored restored(1, json());
  Offloaded offloaded, alone;
  KvCache a = offloaded.model().make_cache(), b = alone.model().make_cache();
  const std::vector<int32_t> tokens = tiny_prompt(40), question = Restored::question();
  (void)fed(offloaded.model(), a, tokens);
  (void)fed(alone.model(), b, tokens);
  std::string failure;
  Beside hooks([&](int64_t) {
    emulated_cuda::set_memory(emulated_cuda::taken_bytes() + 1000);
    try {
      offloaded.model().upload(restored.cache, 7);
    } catch (const UserError& error) {
      failure = error.what();
    }
    emulated_cuda::set_memory(std::numeric_limits<long>::max());
  });
  Beside idle([](int64_t) {});
  const std::vector<float> want = fed_beside(alone.model(), b, question, idle);
  EXPECT_EQ(fed_beside(offloaded.model(), a, question, hooks), want);
  EXPECT_NE(failure.find("out of memory"), std::string::npos) << failure;
  EXPECT_EQ(fed(offloaded.model(), restored.cache, question), restored.logits) << "once there is room";
}

/// Hands restored caches from one thread to another.
class Handover {
 public:
  void give(KvCache cache, const std::vector<float>* logits) {
    const std::lock_guard lock(mutex_);
    caches_.emplace_back(std::move(cache), logits);
  }
  [[nodiscard]] std::optional<std::pair<KvCache, const std::vector<float>*>> take() {
    const std::lock_guard lock(mutex_);
    if (caches_.empty()) return std::nullopt;
    std::optional<std::pair<KvCache, const std::vector<float>*>> first(std::move(caches_.front()));
    caches_.pop_front();
    return first;
  }

 private:
  std::mutex mutex_;
  std::deque<std::pair<KvCache, const std::vector<float>*>> caches_;
};

TEST(DeviceUpload, ManyGoUpBesidePassesWithinTheMemoryThatCachesMayTake) {
  std::vector<Restored> restored;
  for (uint64_t seed = 0; seed < 2; ++seed) {
    for (const json& spec : {json(), json{{"name", "snapkv"}, {"keep", 0.5}}, json{{"name", "kivi"}, {"bits", 4}}})
      restored.emplace_back(seed, spec);
  }
  const std::vector<int32_t> tokens = tiny_prompt(60), question = Restored::question();
  std::vector<std::vector<float>> steps;  // of a cache that grows alone
  Offloaded alone;
  KvCache b = alone.model().make_cache();
  for (const int32_t token : tokens) steps.push_back(fed(alone.model(), b, {&token, 1}));

  const int64_t limit = 3 * one_copy(alone);
  Offloaded offloaded(limit);
  Transformer& model = offloaded.model();
  for (Restored& one : restored) {  // memory that passes take beside caches
    KvCache cache = one.cache.clone();
    (void)fed(model, cache, question);
  }
  const int64_t devices =
      std::ssize(DeviceCache(offloaded.device().model().shapes(), Placement::device, 1).bytes_by_device());
  const int64_t aside = limit / 6;  // what is packed goes up in pieces
  if (emulated_cuda::here()) emulated_cuda::set_memory(emulated_cuda::taken_bytes() + devices * (limit + aside));
  constexpr int kRounds = 4;
  Handover handover;
  std::future<void> uploading = std::async(std::launch::async, [&] {
    for (int round = 0; round < kRounds; ++round) {
      for (const Restored& one : restored) {
        KvCache cache = one.cache.clone();
        model.upload(cache, 7);
        handover.give(std::move(cache), &one.logits);
      }
    }
  });
  KvCache a = model.make_cache();
  size_t step = 0, taken = 0;
  while (taken < kRounds * restored.size()) {
    if (step == tokens.size()) {
      a = model.make_cache();
      step = 0;
    }
    std::vector<SequencePass> passes = {
        {.tokens = std::span(tokens).subspan(step, 1), .cache = &a, .logits = LogitsRows::all}};
    auto next = handover.take();
    if (next) passes.push_back({.tokens = question, .cache = &next->first, .logits = LogitsRows::all});
    const std::span<const float> logits = model.forward(passes);
    const auto first = logits.first(steps[step].size()), second = logits.subspan(first.size());
    ASSERT_EQ(std::vector<float>(first.begin(), first.end()), steps[step]) << step;
    if (next) {
      ASSERT_EQ(std::vector<float>(second.begin(), second.end()), *next->second) << taken;
      ++taken;
    }
    ++step;
  }
  uploading.get();
  if (emulated_cuda::here()) emulated_cuda::set_memory(std::numeric_limits<long>::max());
}

TEST(DeviceUpload, ChunksGoUpWhileOthersComputeAndThePromptsBitsStay) {
  Offloaded offloaded;
  Transformer& model = offloaded.model();
  const std::vector<int32_t> tokens = tiny_prompt(140);
  const PromptLayout layout{.prefix = 30, .question = 130};
  for (const json& spec :
       {json{{"name", "prefix_cache"}, {"chunk", 32}}, json{{"name", "epic"}, {"tokens", 8}, {"chunk", 32}},
        json{{"name", "speccache"}, {"recompute", 0.4}, {"chunk", 32}}}) {
    SCOPED_TRACE(spec.dump());
    const auto method = make_method(spec, "test");
    ReuseMemory memory;
    prime(model, tokens, layout, *method->reuser(), memory);
    const ReusedPrompt alone = reuse_prompt(model, tokens, layout, *method->reuser(), memory);
    ReuseRun run(model, tokens, layout, *method->reuser(), memory);
    const auto pass = [&] {
      const SequencePass next = run.next_pass();
      run.consume(model.forward({&next, 1}));
    };
    KvCache other = model.make_cache();
    Beside hooks([&](int64_t layer) {
      if (layer == 0) run.begin(ReuseRun::Beginning::beside_passes);
    });
    (void)fed_beside(model, other, tiny_prompt(40), hooks);
    while (run.reads_itself()) pass();
    run.arrange();
    const int64_t uploads = offloaded.device().mirrors().uploads();
    while (run.remaining() > 0) pass();
    EXPECT_EQ(offloaded.device().mirrors().uploads(), uploads) << "all lay there";
    const ReusedPrompt beside = run.finish();
    EXPECT_EQ(beside.logits, alone.logits);
    EXPECT_EQ(beside.record.recomputed, alone.record.recomputed);
  }
}

}  // namespace
}  // namespace kvarena::device
