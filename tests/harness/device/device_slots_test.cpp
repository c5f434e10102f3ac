// Selections on a device (emulated here): a choice that is known before the pass is not waited for, and of what lies
// behind the device only what the pass before did not attend to goes up.
#include "harness/device/device_slots.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "harness/cache/indexed_segment.h"
#include "harness/cache/known_choice.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/serving/batch_run.h"
#include "harness/engine/session/forwarding_hooks.h"
#include "harness/engine/session/selection_meter.h"
#include "harness/storage/hierarchy.h"
#include "kernels/common/cpu_path.h"
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

constexpr int64_t kEntry = 2 * 32 * 4;  // key and value of a head in float32
const json kLowBits{{"name", "kivi"}, {"bits", 2}, {"group_size", 16}, {"residual_length", 32}};

json specontext(const Transformer& model, const json& more) {
  const std::string drafter = KVARENA_SOURCE_DIR "/tests/golden/specontext_eagle3";
  json spec{{"name", "specontext"}, {"tokens", 64}, {"head", testing::imported(model, "specontext", drafter)}};
  spec.update(more);
  return spec;
}

/// A tiny model on a device, and a prompt that it has read.
class DeviceSlotsTest : public ::testing::Test {
 protected:
  explicit DeviceSlotsTest(int64_t tokens = 300, const ModelConfig& config = testing::tiny_config())
      : offloaded_(1 << 30, config),
        prompt_(prefill(offloaded_.model(), tiny_prompt(tokens), {}, kPrefillChunk, model_facts(offloaded_.model()))) {}

  json specontext(const json& more = json::object()) { return device::specontext(offloaded_.model(), more); }

  /// Decodes so many tokens and tells how the host waits in each pass, but in the one that records a step, whose
  /// constants are uploaded.
  void decode_watched(const json& spec, int64_t tokens,
                      const std::function<void(int64_t pass, const emulated_cuda::Waits&)>& tell);

  /// Bytes of entries that went up since the last call.
  int64_t went_up() {
    const int64_t all = offloaded_.device().model().slot_bytes();
    return all - std::exchange(before_, all);
  }

  Offloaded offloaded_;
  Prefill prompt_;
  int64_t before_ = 0;
};

/// Counts how often the host waits, from a pass's first choice until all of it is queued and the first layer is shown.
class Waits final : public ForwardingHooks, public KnownChoice {
 public:
  explicit Waits(AttentionHooks* own) : ForwardingHooks(own), own_(dynamic_cast<KnownChoice*>(own)) {}
  [[nodiscard]] bool known(const KvCache& cache) const override { return own_ != nullptr && own_->known(cache); }
  void before_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries) override {
    if (layer == 0) began_ = emulated_cuda::waits();
    ForwardingHooks::before_attention(layer, cache, queries);
  }
  void after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) override {
    if (layer == 0) waited = emulated_cuda::waits() - began_;
    ForwardingHooks::after_attention(layer, cache, queries, lse);
  }
  emulated_cuda::Waits waited;

 private:
  const KnownChoice* own_;
  emulated_cuda::Waits began_;
};

void DeviceSlotsTest::decode_watched(const json& spec, int64_t tokens,
                                     const std::function<void(int64_t pass, const emulated_cuda::Waits&)>& tell) {
  const auto method = make_method(spec, "test");
  const auto session = start_session(offloaded_.model(), prompt_, *method, {.stop = {.max_new_tokens = tokens}});
  int64_t replayed = 0;
  for (int64_t pass = 0; !session->finished(); ++pass) {
    const int64_t before = offloaded_.device().model().replayed();
    SequencePass next = session->next_pass();
    Waits waits(next.hooks);
    next.hooks = &waits;
    session->consume(offloaded_.model().forward({&next, 1}));
    const int64_t more = offloaded_.device().model().replayed() - before;
    const bool records = more > 0 && replayed == 0;
    replayed += more;
    if (!records) tell(pass, waits.waited);
  }
  EXPECT_EQ(session->failure, "");
}

TEST_F(DeviceSlotsTest, TheDeviceWaitsForNoChoiceThatIsKnownBefore) {
  if (!emulated_cuda::here()) GTEST_SKIP() << emulated_cuda::kOnlyHere;
  const std::vector<std::pair<json, long>> inside = {
      {specontext(), 0},
      {specontext({{"level", "batch"}}), 0},
      {specontext({{"dense_layers", 1}}), 0},
      {specontext({{"offload", "all"}}), 0},
      {{{"name", "specache"}, {"k", 8}, {"copy", kLowBits}}, 0},
      {{{"name", "specache"}, {"k", 8}, {"copy", kLowBits}, {"speculative", false}}, 2},  // but the first layer's
      {{{"name", "quest"}, {"tokens", 64}}, 2}};
  for (const auto& [spec, expected] : inside) {
    SCOPED_TRACE(spec.dump());
    decode_watched(spec, 6, [&, expected = expected](int64_t pass, const emulated_cuda::Waits& waited) {
      EXPECT_EQ(waited.streams, expected) << "pass " << pass;
    });
  }
}

class DeepDeviceSlotsTest : public DeviceSlotsTest {
 protected:
  DeepDeviceSlotsTest() : DeviceSlotsTest(300, deep()) {}
  static ModelConfig deep() {
    ModelConfig config = testing::tiny_config();
    config.layers = 24;
    return config;
  }
};

/// Streams do nothing until somebody waits for them: nobody does, but for the first layer's rows, which the host looks
/// at.
TEST_F(DeepDeviceSlotsTest, AWarmPassTakesNoMemoryAndWaitsForNothing) {
  if (!emulated_cuda::here()) GTEST_SKIP() << emulated_cuda::kOnlyHere;
  emulated_cuda::set_lazy(true);
  for (const json& spec : {specontext(), specontext({{"dense_layers", 1}}), specontext({{"offload", "all"}}),
                           json{{"name", "specache"}, {"k", 8}, {"copy", kLowBits}}}) {
    SCOPED_TRACE(spec.dump());
    decode_watched(spec, 12, [&](int64_t pass, const emulated_cuda::Waits& waited) {
      if (pass < 7) return;  // memory grows
      EXPECT_EQ(waited, emulated_cuda::Waits{.events = 1}) << "pass " << pass << ", " << waited.events << " events";
    });
  }
  emulated_cuda::set_lazy(false);
}

/// Looks, behind each layer, whether the device still has something to do, and whether what the method wants for the
/// next token has been asked for.
class Unfinished final : public ForwardingHooks, public KnownChoice {
 public:
  Unfinished(AttentionHooks* own, const DeviceModel& model, const storage::Link& link)
      : ForwardingHooks(own), own_(dynamic_cast<KnownChoice*>(own)), model_(&model), link_(&link) {}
  [[nodiscard]] bool known(const KvCache& cache) const override { return own_ != nullptr && own_->known(cache); }
  void before_pass(KvCache& cache, std::span<const int32_t> tokens) override {
    before_ = link_->totals().transfers;
    ForwardingHooks::before_pass(cache, tokens);
  }
  void after_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) override {
    ForwardingHooks::after_layer(layer, rows, count, hidden_size);
    for (int i = 0; i < 3000 && link_->totals().transfers - before_ <= layer; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const kernels::CudaDeviceScope there(model_->shapes().back().device);
    kernels::CudaMark end;
    end.record(model_->stream());
    unfinished.push_back(!end.reached());
    fetched.push_back(link_->totals().transfers - before_);
  }
  std::vector<bool> unfinished;
  std::vector<int64_t> fetched;  // transfers since the pass began

 private:
  const KnownChoice* own_;
  const DeviceModel* model_;
  const storage::Link* link_;
  int64_t before_ = 0;
};

/// Streams do nothing until somebody waits for them: a layer is shown when it has been computed, and no later.
TEST_F(DeviceSlotsTest, TheNextTokensEntriesComeWhileLaterLayersAreComputed) {
  if (!emulated_cuda::here()) GTEST_SKIP() << emulated_cuda::kOnlyHere;
  const storage::Link& link = prompt_.model->tiers->load(Tier::host);
  const auto method = make_method({{"name", "specache"}, {"k", 8}, {"copy", kLowBits}}, "test");
  const auto session = start_session(offloaded_.model(), prompt_, *method, {.stop = {.max_new_tokens = 6}});
  emulated_cuda::set_lazy(true);
  for (int pass = 0; !session->finished(); ++pass) {
    SequencePass next = session->next_pass();
    Unfinished looks(next.hooks, offloaded_.device().model(), link);
    next.hooks = &looks;
    session->consume(offloaded_.model().forward({&next, 1}));
    if (pass == 0) continue;  // memory is taken
    EXPECT_EQ(looks.unfinished, std::vector<bool>(3, true)) << "pass " << pass;
    EXPECT_EQ(looks.fetched, (std::vector<int64_t>{1, 2, 3})) << "pass " << pass;
  }
  emulated_cuda::set_lazy(false);
  EXPECT_EQ(session->failure, "");
}

/// A meter of selections sees queries before it is made, so that the device waits in each layer.
TEST_F(DeviceSlotsTest, WhatIsKnownBeforeHasTheBitsOfWhatIsWaitedFor) {
  for (const json& more : {json::object(), json{{"level", "batch"}}, json{{"dense_layers", 1}},
                           json{{"offload", "all"}}, json{{"offload", "all"}, {"elastic", false}}}) {
    SCOPED_TRACE(more.dump());
    const int64_t replayed = offloaded_.device().model().replayed();
    const Decoded got = decode(offloaded_.model(), prompt_, specontext(more), 10);
    const int64_t recorded = offloaded_.device().model().replayed() - replayed;
    SelectionMeter meter(prompt_.cache);
    const Decoded waited = decode(offloaded_.model(), prompt_, specontext(more), 10, {.meter = &meter});
    EXPECT_EQ(got.logits, waited.logits);
    EXPECT_EQ(got.activity.entries_skipped, waited.activity.entries_skipped);
    EXPECT_EQ(got.activity.traffic.loaded_bytes, waited.activity.traffic.loaded_bytes);
    EXPECT_EQ(recorded, more.contains("offload") ? 0 : 8);  // of 9 passes
    if (!more.contains("offload")) continue;
    EXPECT_EQ(got.logits, decode(offloaded_.model(), prompt_, specontext(), 10).logits);
  }
}

class WindowedDeviceSlotsTest : public DeviceSlotsTest {
 protected:
  WindowedDeviceSlotsTest() : DeviceSlotsTest(300, windowed()) {}
  static ModelConfig windowed() {
    ModelConfig config = testing::tiny_config();
    config.sliding_window = 40;
    config.sliding_layers = {false, true, false};
    return config;
  }
};

TEST_F(WindowedDeviceSlotsTest, LayersOfBothKindsAreRecorded) {
  for (const json& more : {json::object(), json{{"dense_layers", 1}}}) {
    SCOPED_TRACE(more.dump());
    const int64_t replayed = offloaded_.device().model().replayed();
    const Decoded got = decode(offloaded_.model(), prompt_, specontext(more), 10);
    EXPECT_EQ(offloaded_.device().model().replayed() - replayed, 8) << "of 9 passes";
    SelectionMeter meter(prompt_.cache);
    const Decoded waited = decode(offloaded_.model(), prompt_, specontext(more), 10, {.meter = &meter});
    EXPECT_EQ(got.logits, waited.logits);
    EXPECT_EQ(got.activity.entries_skipped, waited.activity.entries_skipped);
  }
}

TEST_F(DeviceSlotsTest, WhatMethodsCountCrossesTheBus) {
  const auto loaded = [&](const json& spec) {
    (void)went_up();
    return decode(offloaded_.model(), prompt_, spec, 16).activity.traffic.loaded_bytes;
  };
  const int64_t difference = loaded(specontext({{"offload", "all"}}));
  EXPECT_GT(difference, 3 * 2 * 63 * kEntry);  // the first choice
  EXPECT_EQ(went_up(), difference);
  EXPECT_EQ(loaded(specontext({{"offload", "all"}, {"elastic", false}})), 15 * 3 * 2 * 63 * kEntry);
  EXPECT_EQ(went_up(), 15 * 3 * 2 * 63 * kEntry);
  EXPECT_EQ(loaded(specontext()), 0);
  EXPECT_EQ(went_up(), 0);
  for (const bool elastic : {true, false}) {
    for (const bool speculative : {true, false}) {
      const int64_t bytes = loaded(
          {{"name", "specache"}, {"k", 8}, {"copy", kLowBits}, {"elastic", elastic}, {"speculative", speculative}});
      EXPECT_GT(bytes, 3 * 2 * 8 * kEntry);
      EXPECT_EQ(went_up(), bytes);
    }
  }
}

/// Two requests may hold 600 kB each: a layer leaves at once, a second one where five more tokens need another cell.
TEST_F(DeviceSlotsTest, LayersLeaveBetweenPasses) {
  const Decoded stays = decode(offloaded_.model(), prompt_, specontext(), 16);
  (void)went_up();
  const auto method = make_method(specontext({{"offload", "adaptive"}}), "test");
  const BatchRun batch = run_batch(offloaded_.model(), prompt_, *method, {.stop = {.max_new_tokens = 16}},
                                   {.requests = 2, .device_bytes = 1'200'000});
  EXPECT_EQ(batch.peak_running, 2);
  int64_t loaded = 0;
  for (const auto& session : batch.sessions) {
    EXPECT_EQ(session->failure, "");
    EXPECT_EQ(session->tokens, stays.tokens);
    EXPECT_EQ(session->activity.traffic.offloaded_bytes, 2 * 315 * 2 * kEntry);  // layers, tokens, heads
    loaded += session->activity.traffic.loaded_bytes;
  }
  EXPECT_EQ(went_up(), loaded);
}

/// Writes down the entries that the last layer attends to, of those that its view holds.
class Noted final : public ForwardingHooks, public KnownChoice {
 public:
  explicit Noted(AttentionHooks* own) : ForwardingHooks(own), own_(dynamic_cast<KnownChoice*>(own)) {}
  [[nodiscard]] bool known(const KvCache& cache) const override { return own_ != nullptr && own_->known(cache); }
  void before_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries) override {
    ForwardingHooks::before_attention(layer, cache, queries);
    const auto* const view = dynamic_cast<const IndexedSegment*>(cache.view.get());
    for (int64_t head = 0; layer == 2 && view != nullptr && head < cache.shape().q_heads; ++head)
      lists.emplace_back(view->selected(head).begin(), view->selected(head).end());
  }
  std::vector<std::vector<int32_t>> lists;  // [q_heads]

 private:
  const KnownChoice* own_;
};

/// A head's keys, scores and choice are the device's there, with the host's bits.
TEST_F(DeviceSlotsTest, TheDeviceChoosesWhatTheHostChooses) {
  if (kernels::active_cpu_path() == kernels::CpuPath::reference) GTEST_SKIP() << "the reference path rounds otherwise";
  Transformer host = testing::tiny_model(1, kF32);
  const Prefill prompt = prefill(host, prompt_.tokens, {}, kPrefillChunk, model_facts(host));
  const std::vector<int32_t> answer = tiny_prompt(20, 3);
  const auto run = [&](Transformer& model, const Prefill& read, const json& spec) {
    const auto method = make_method(spec, "test");
    const auto session = start_session(model, read, *method, {.forced = answer});
    std::vector<std::pair<std::vector<std::vector<int32_t>>, int64_t>> passes;  // what they choose, what was loaded
    while (!session->finished()) {
      SequencePass next = session->next_pass();
      Noted notes(next.hooks);
      next.hooks = &notes;
      session->consume(model.forward({&next, 1}));
      passes.emplace_back(notes.lists, session->activity.traffic.loaded_bytes);
    }
    EXPECT_EQ(session->failure, "");
    return passes;
  };
  for (const char* level : {"head", "batch"}) {
    for (const char* offload : {"none", "all", "adaptive"}) {
      const json spec = specontext({{"level", level}, {"offload", offload}});
      const auto got = run(offloaded_.model(), prompt_, spec), want = run(host, prompt, spec);
      EXPECT_EQ(got.size(), 19);
      for (size_t pass = 0; pass < want.size(); ++pass) {
        EXPECT_EQ(std::ssize(want[pass].first.at(3)), 64);
        EXPECT_EQ(got.at(pass), want[pass]) << spec.dump() << " pass " << pass;
      }
      EXPECT_EQ(want.back().second > 0, spec["offload"] == "all");
    }
  }
}

TEST(DeviceSlots, FeaturesOfThePassBeforeChooseAsOnTheHost) {
  ModelConfig config = testing::tiny_config();
  config.layers = 8;
  Offloaded offloaded(1 << 30, config);
  Transformer host = testing::tiny_model(1, kF32, config);
  const auto run = [&](Transformer& model, const char* feature) {
    const auto method = make_method(specontext(model, {{"tokens", 24}, {"feature", feature}}), "test");
    const Prefill prompt = prefill(model, tiny_prompt(200), method->needs(), kPrefillChunk, model_facts(model));
    return decode(model, prompt, *method, 10);
  };
  const Decoded got = run(offloaded.model(), "previous"), want = run(host, "previous"), other = run(host, "zero");
  EXPECT_EQ(offloaded.device().model().replayed(), 8) << "of 9 passes";
  EXPECT_EQ(got.failure, "");
  EXPECT_EQ(got.tokens, want.tokens);
  for (size_t step = 0; step < want.logits.size(); ++step)
    EXPECT_LT(testing::relative_error(got.logits[step], want.logits[step]), 1e-3) << step;
  EXPECT_GT(testing::relative_error(other.logits[1], want.logits[1]), 1e-2) << "another choice shows";
}

/// A prompt of 11 chunks, of which 4 are local and 2 are outliers: every step chooses the other 5.
class ShortPrompt : public DeviceSlotsTest {
 protected:
  ShortPrompt() : DeviceSlotsTest(90) {}
};

TEST_F(ShortPrompt, WhatStaysChosenDoesNotGoUpAgain) {
  const Decoded got =
      decode(offloaded_.model(), prompt_, {{"name", "shadowkv"}, {"keep", 0.5}, {"outliers", 2}, {"rank", 16}}, 10);
  EXPECT_EQ(got.activity.traffic.loaded_bytes, 9 * 3 * 2 * 40 * kEntry / 2);  // values alone, in every step
  EXPECT_EQ(went_up(), 3 * 2 * 40 * kEntry);                                  // with the keys that the host restored
}

/// Beside its blocks InfLLM shows entries without their rotation: the first ones, and those that left the window.
TEST_F(ShortPrompt, BlocksGoUpWhenTheyAreLoaded) {
  for (const int held : {1, 2, 3}) {
    const json spec{{"name", "infllm"}, {"init", 8},  {"local", 32},          {"block", 16},
                    {"topk", 1},        {"exec", 32}, {"cached_blocks", held}};
    const auto bytes = [&](int64_t tokens) {
      (void)went_up();
      const Decoded got = decode(offloaded_.model(), prompt_, spec, tokens);
      return std::pair{went_up(), got.activity.traffic.loaded_bytes};
    };
    const auto [all, blocks] = bytes(6);
    const auto [all_later, blocks_later] = bytes(10);
    EXPECT_GT(blocks, 0);
    EXPECT_EQ((all_later - all) - (blocks_later - blocks), 4 * 3 * 2 * kEntry);  // an entry a step leaves the window
  }
}

}  // namespace
}  // namespace kvarena::device
