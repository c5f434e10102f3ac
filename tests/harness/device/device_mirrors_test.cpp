// Copies of the host's caches on a device: what they follow, what goes up alone, what goes up whole.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ranges>

#include "harness/cache/sliding_window.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/read_by_layers.h"
#include "tests/support/decoding.h"
#include "tests/support/differences.h"
#include "tests/support/offloaded_model.h"
#include "tests/support/packed_cache.h"

namespace kvarena::device {
namespace {

using nlohmann::json;
using testing::decode;
using testing::Decoded;
using testing::pack;
using testing::relative_error;
using testing::tiny_prompt;

TEST(DeviceMirrors, TheHostsCacheHoldsWhatTheDeviceComputedBitForBit) {
  Offloaded offloaded;
  const std::vector<int32_t> tokens = tiny_prompt(80);
  KvCache cache = offloaded.model().make_cache();
  const std::vector<float> first = fed(offloaded.model(), cache, std::span(tokens).first(60));
  EXPECT_EQ(cache.length, 60);
  EXPECT_EQ(offloaded.device().mirrors().uploads(), 0);  // it grew where it was computed
  KvCache copy = cache.clone();
  copy.mirror.reset();
  const std::vector<float> want = fed(offloaded.model(), cache, std::span(tokens).last(20));
  EXPECT_EQ(fed(offloaded.model(), copy, std::span(tokens).last(20)), want);  // brought from the host
  EXPECT_EQ(offloaded.device().mirrors().uploads(), 1);
}

TEST(DeviceMirrors, ClonesAreMadeWhereTheEntriesLie) {
  const std::vector<int32_t> tokens = tiny_prompt(80), other = tiny_prompt(20, 3);
  const auto last = std::span(tokens).last(20);
  Offloaded offloaded;
  std::optional<KvCache> cache = offloaded.model().make_cache();
  (void)fed(offloaded.model(), *cache, std::span(tokens).first(60));
  KvCache early = cache->clone(), late = cache->clone(), orphan = cache->clone();
  const std::vector<float> want = fed(offloaded.model(), *cache, last);
  EXPECT_EQ(fed(offloaded.model(), early, last), want);  // the one that it is a clone of has grown
  EXPECT_EQ(offloaded.device().mirrors().copies(), 1);
  EXPECT_EQ(offloaded.device().mirrors().uploads(), 0);

  KvCache whole = early.clone();  // of a clone
  whole.truncate(60);
  EXPECT_EQ(fed(offloaded.model(), whole, last), want);
  EXPECT_EQ(offloaded.device().mirrors().copies(), 2);

  cache->truncate(30);  // other entries take the places of those that were cloned
  (void)fed(offloaded.model(), *cache, other);
  EXPECT_EQ(fed(offloaded.model(), late, last), want);
  cache.reset();
  EXPECT_EQ(fed(offloaded.model(), orphan, last), want);
  EXPECT_EQ(offloaded.device().mirrors().copies(), 2);
  EXPECT_EQ(offloaded.device().mirrors().uploads(), 2);
}

/// A layer with a window goes up anew when it released entries; drafts are taken back where the copy lies.
TEST(DeviceMirrors, LayersThatReleaseEntriesStayOnTheDevice) {
  ModelConfig config = testing::tiny_config();
  config.sliding_window = 40;
  config.sliding_layers = {true, false, true};
  Transformer host = testing::tiny_model(1, kF32, config);
  Offloaded offloaded(1 << 30, config);
  const std::vector<int32_t> tokens = tiny_prompt(700);
  KvCache cache = offloaded.model().make_cache();
  for (const int64_t count : {560, 9, 1, 9, 1}) {
    release_unseen(cache);
    const auto next = std::span(tokens).subspan(static_cast<size_t>(cache.length), static_cast<size_t>(count));
    ASSERT_NO_FATAL_FAILURE(feed_as_anew(host, offloaded.model(), cache, next));
    if (count == 9) cache.truncate(cache.length - 4);
  }
  EXPECT_EQ(cache.layers[0].entries(0), cache.length - 512);
  EXPECT_EQ(cache.layers[1].entries(0), cache.length);
  const int64_t uploads = offloaded.device().mirrors().uploads();
  (void)fed(offloaded.model(), cache, std::span(tokens).first(9));
  cache.truncate(cache.length - 8);
  (void)fed(offloaded.model(), cache, std::span(tokens).first(1));
  EXPECT_EQ(offloaded.device().mirrors().uploads(), uploads);
}

/// Attention of a prompt's last queries is computed on the device, even if its mirror was evicted meanwhile.
TEST(DeviceMirrors, APromptsLastQueriesAreAskedOnTheDevice) {
  const json spec{{"name", "snapkv"}, {"keep", 0.3}};
  const Needs needs = make_method(spec, "test")->needs();
  Transformer host = testing::tiny_model(1, kF32);
  std::vector<Decoded> answers;
  for (const int64_t bytes : {int64_t{1} << 30, int64_t{400} * 1024}) {
    Offloaded offloaded(bytes);
    const Prefill prompt = prefill(offloaded.model(), tiny_prompt(150), needs);
    KvCache other = offloaded.model().make_cache();
    (void)fed(offloaded.model(), other, tiny_prompt(150, 5));
    EXPECT_EQ(offloaded.device().mirrors().evictions() > 0, bytes < 1 << 20);
    const int64_t before = offloaded.device().mirrors().lookups();
    answers.push_back(decode(offloaded.model(), prompt, spec, 12));
    EXPECT_EQ(offloaded.device().mirrors().lookups() - before, 3);  // layers
    SessionOptions same;
    same.forced = answers.back().tokens;
    const Decoded want = decode(host, prompt, spec, 12, std::move(same));
    for (size_t i = 0; i < want.logits.size(); ++i)
      EXPECT_LT(relative_error(answers.back().logits.at(i), want.logits[i]), 1e-3) << i;
  }
  EXPECT_EQ(answers[0].logits, answers[1].logits);
}

TEST(DeviceMirrors, WhatWasTakenBackOrChangedIsNotAttendedTo) {
  Offloaded offloaded;
  const std::vector<int32_t> tokens = tiny_prompt(80), other = tiny_prompt(20, 3);
  KvCache cache = offloaded.model().make_cache();
  (void)fed(offloaded.model(), cache, std::span(tokens).first(60));
  const std::vector<float> want = fed(offloaded.model(), cache, std::span(tokens).last(20));
  cache.truncate(60);
  (void)fed(offloaded.model(), cache, other);
  cache.truncate(60);
  EXPECT_EQ(fed(offloaded.model(), cache, std::span(tokens).last(20)), want);
  EXPECT_EQ(offloaded.device().mirrors().uploads(), 0);  // the device took back what the host did

  cache.truncate(60);
  const std::vector<float> zeros(64);
  cache.layers[1].tail().overwrite(1, 17, zeros.data(), nullptr);
  EXPECT_NE(fed(offloaded.model(), cache, std::span(tokens).last(20)), want);
  EXPECT_EQ(offloaded.device().mirrors().uploads(), 0);  // one entry came
  cache.truncate(60);
  cache.layers[1].tail().replace(17, zeros.data(), zeros.data(), 1, 0);
  (void)fed(offloaded.model(), cache, std::span(tokens).last(20));
  EXPECT_EQ(offloaded.device().mirrors().uploads(), 1);
}

TEST(DeviceMirrors, WhatACopyTakesBeyondItsCacheIsItsRequests) {
  Offloaded offloaded;
  const std::vector<PlacedLayer>& shapes = offloaded.device().model().shapes();
  DeviceBytes limits;
  for (const PlacedLayer& layer : shapes) limits[layer.device] = 1 << 30;
  const auto mirrors = std::make_shared<DeviceMirrors>(shapes, limits);
  KvCache cache = offloaded.model().make_cache();
  (void)fed(offloaded.model(), cache, tiny_prompt(60));
  const int64_t process = MemoryLedger::process().current(Tier::device);
  const auto held = [&] { return cache.ledger->current(Tier::device); };
  const auto bytes_of_copy = [&](int64_t tokens) {
    const GrowingCache grown[] = {{.host = &cache, .tokens = tokens}};
    return mirrors->of(grown, 3).front()->bytes();
  };
  const int64_t copied = bytes_of_copy(1);
  EXPECT_GT(copied, cache.bytes());
  EXPECT_EQ(held(), copied);
  EXPECT_EQ(MemoryLedger::process().current(Tier::device), process) << "admission is by caches alone";
  KvCache moved = std::move(cache);
  cache = moved.clone();
  EXPECT_EQ(held(), cache.bytes()) << "a clone without a copy";
  moved.mirror.reset();
  EXPECT_EQ(moved.ledger->current(Tier::device), moved.bytes());
  EXPECT_GE(moved.ledger->peak(Tier::device), copied);
}

/// Each further device holds one layer more.
TEST(DeviceMirrors, APromptThatIsReadByLayersCountsOneLayerBesideTheResult) {
  constexpr int64_t kTokens = 256;  // what copies are rounded up to, too
  const std::vector<int32_t> tokens = tiny_prompt(kTokens);
  Transformer host = testing::tiny_model(1, kF32);
  Offloaded offloaded;
  const int64_t layer = kTokens * host.layer_shape(0).entry_bytes(),
                devices = std::min<int64_t>(3, kernels::cuda_devices());
  const json copy{{"name", "kivi"}, {"bits", 1}, {"group_size", 32}, {"residual_length", 64}};
  for (const json& spec :
       {json{{"name", "specache"}, {"k", 16}, {"copy", copy}}, json{{"name", "knorm"}, {"keep", 0.25}}}) {
    SCOPED_TRACE(spec.dump());
    const auto method = make_method(spec, "test");
    const auto peak = [&](const Prefill& prompt) {
      return prompt.compressed->by_method.at(method.get()).state.cache.ledger->peak(Tier::device);
    };
    const Prefill own = read_for(offloaded.model(), tokens, *method, /*sessions=*/1, model_facts(offloaded.model()));
    const int64_t least = peak(read_for(host, tokens, *method, /*sessions=*/1, model_facts(host)));
    EXPECT_GE(peak(own), least);
    EXPECT_LE(peak(own), least + (devices - 1) * layer);
    const Prefill whole = prefill(offloaded.model(), tokens, method->needs(), kPrefillChunk, own.model);
    EXPECT_EQ(decode(offloaded.model(), own, *method, 4).logits, decode(offloaded.model(), whole, *method, 4).logits);
  }
}

TEST(DeviceMirrors, ALayerThatLeavesIsDroppedWhereItLies) {
  Offloaded offloaded;
  const std::vector<PlacedLayer>& shapes = offloaded.device().model().shapes();
  DeviceBytes limits;
  for (const PlacedLayer& layer : shapes) limits[layer.device] = 1 << 30;
  const auto mirrors = std::make_shared<DeviceMirrors>(shapes, limits);
  KvCache cache = offloaded.model().make_cache();
  (void)fed(offloaded.model(), cache, tiny_prompt(60));
  const GrowingCache grown[] = {{.host = &cache, .tokens = 1}};
  const auto copy = [&] { return mirrors->of(grown, 3).front(); };
  const int64_t id = copy()->id();
  cache.layers[1].tail().drop_front(60);
  EXPECT_EQ(copy()->id(), id);
  EXPECT_EQ(copy()->held(0, 0), 60);
  EXPECT_EQ(copy()->held(1, 0), 0);
  cache.layers[2].tail().drop_front(20);
  EXPECT_NE(copy()->id(), id);  // made anew, but for the first layer
  EXPECT_EQ(copy()->held(2, 1), 40);
  EXPECT_EQ(mirrors->uploads(), 2);
}

TEST(DeviceMirrors, WhatIsOverwrittenComesAlone) {
  Offloaded offloaded;
  const std::vector<int32_t> tokens = tiny_prompt(200);
  const RandomStream draws(13, "overwritten");
  KvCache cache = offloaded.model().make_cache();
  (void)fed(offloaded.model(), cache, std::span(tokens).first(60));
  int64_t at = 60, clones = 0;
  for (uint64_t step = 0; step < 16; ++step) {
    for (uint64_t layer = 0; layer < cache.layers.size(); ++layer) {
      EntrySegment& tail = cache.layers[layer].tail();
      for (uint64_t i = 0; i < 5; ++i) {  // now and then one twice, or one that leaves at once
        const uint64_t draw = 100 * step + 10 * layer + i;
        const auto head = static_cast<int64_t>(draws.below(2, 2 * draw)),
                   entry = static_cast<int64_t>(draws.below(static_cast<uint64_t>(tail.entries(head)), 2 * draw + 1));
        std::vector<float> row(32);
        for (size_t c = 0; c < row.size(); ++c) row[c] = static_cast<float>(draws.uniform(100 * draw + c)) - .5F;
        tail.overwrite(head, entry, i % 3 == 0 ? nullptr : row.data(), i % 3 == 1 ? nullptr : row.data());
      }
      if ((step + layer) % 4 != 3) continue;
      std::vector<std::vector<int32_t>> kept(2);
      for (int64_t head = 0; head < 2; ++head) {
        for (int32_t i = 0; i < tail.entries(head); ++i) {
          if (draws.below(8, 10000 + 100 * step + static_cast<uint64_t>(i)) > 0) kept[head].push_back(i);
        }
      }
      tail.keep(kept);
    }
    KvCache fresh = cache.clone();
    const std::span<const int32_t> some = std::span(tokens).subspan(at, step % 4 == 2 ? 3 : 1);
    ASSERT_EQ(fed(offloaded.model(), cache, some), fed(offloaded.model(), fresh, some)) << step;
    at += std::ssize(some);
    ++clones;
  }
  EXPECT_EQ(offloaded.device().mirrors().uploads(), clones);
}

TEST(DeviceMirrors, WhatTheHostGotElsewhereComesAlone) {
  Offloaded offloaded;
  const std::vector<int32_t> tokens = tiny_prompt(80), other = tiny_prompt(20, 3);
  const auto some = [&](size_t first, size_t count) { return std::span(tokens).subspan(first, count); };
  KvCache elsewhere = offloaded.model().make_cache();
  (void)fed(offloaded.model(), elsewhere, some(0, 67));
  const auto take = [&](KvCache& cache, int64_t first, int64_t count) {
    for (size_t layer = 0; layer < cache.layers.size(); ++layer)
      cache.layers[layer].tail().append_entries(elsewhere.layers[layer].tail(), first, count);
    cache.length += count;
  };
  KvCache cache = offloaded.model().make_cache();
  (void)fed(offloaded.model(), cache, some(0, 50));
  (void)fed(offloaded.model(), cache, other);
  cache.truncate(50);
  take(cache, 50, 17);  // behind what was taken back
  const std::vector<float> want = fed(offloaded.model(), elsewhere, some(67, 13));
  EXPECT_EQ(fed(offloaded.model(), cache, some(67, 13)), want);
  EXPECT_EQ(offloaded.device().mirrors().uploads(), 0);

  KvCache left = offloaded.model().make_cache();
  (void)fed(offloaded.model(), left, some(0, 50));
  const std::vector<std::vector<int32_t>> kept{{3, 17, 40}, {0, 1, 2, 5, 8, 21, 33, 44, 49}};
  for (LayerCache& layer : left.layers) layer.tail().keep(kept);
  (void)fed(offloaded.model(), left, some(50, 4));  // comes whole
  take(left, 54, 13);                               // other cells of each head
  KvCache copy = left.clone();
  EXPECT_EQ(fed(offloaded.model(), left, some(67, 3)), fed(offloaded.model(), copy, some(67, 3)));
  EXPECT_EQ(offloaded.device().mirrors().uploads(), 2);  // that, and the clone
}

TEST(DeviceMirrors, WhatACodecPacksIsAttendedToWhereItLiesAndFollowsStepByStep) {
  const kernels::QuantFormat two{.bits = 2, .group_size = 16};
  const kernels::QuantFormat listed{
      .bits = 3, .group_size = 16, .rule = kernels::QuantRule::absmax, .levels = kernels::Levels::codebook};
  kernels::QuantFormat listed_keys = listed;
  listed_keys.token_groups = true;
  const std::vector<float> levels{-1, -0.6F, -0.3F, -0.1F, 0.1F, 0.3F, 0.6F, 1};
  const RowTransformPtr turned = random_rotation(32, 3), signs = hadamard_transform(32, 5);
  const QuantizedFormat formats[] = {
      {.keys = two, .values = two},
      {.keys = two, .values = two, .key_transform = turned},
      {.keys = listed, .values = two, .key_transform = turned, .value_transform = signs, .key_levels = levels},
      {.keys = listed_keys, .values = listed, .key_levels = levels, .value_levels = levels}};
  const std::vector<int32_t> tokens = tiny_prompt(340);
  constexpr int64_t kPrompt = 300, kSteps = 40;  // a front outgrows its room
  for (const QuantizedFormat& format : formats) {
    Transformer host = testing::tiny_model(1, kF32);
    Offloaded offloaded;
    KvCache cache = offloaded.model().make_cache();
    (void)fed(offloaded.model(), cache, std::span(tokens).first(kPrompt / 3));
    int64_t repacked = pack(cache, format) ? 1 : 0;
    (void)fed(offloaded.model(), cache, std::span(tokens).subspan(kPrompt / 3, 2 * kPrompt / 3));
    repacked += pack(cache, format) ? 1 : 0;
    for (int64_t step = kPrompt; step < kPrompt + kSteps; ++step) {
      feed_as_anew(host, offloaded.model(), cache, std::span(tokens).subspan(step, 1));
      repacked += pack(cache, format) && step + 1 < kPrompt + kSteps ? 1 : 0;
    }
    EXPECT_EQ(offloaded.device().mirrors().uploads(), repacked + kSteps);  // packing values alone moves no run
  }
}

TEST(DeviceMirrors, WhatALayerLetsGoIsDroppedFromItsCopyToo) {
  Offloaded offloaded;
  const std::vector<int32_t> tokens = tiny_prompt(1200);
  const RandomStream draws(11, "dropped");
  KvCache cache = offloaded.model().make_cache();
  (void)fed(offloaded.model(), cache, std::span(tokens).first(60));
  int64_t at = 60, clones = 0;
  for (uint64_t step = 0; step < 24; ++step) {
    for (size_t layer = 0; layer < cache.layers.size(); ++layer) {
      std::vector<std::vector<int32_t>> kept(2);
      for (uint64_t head = 0; head < 2; ++head) {  // one head loses more than the other
        for (int32_t i = 0; i < cache.layers[layer].entries(static_cast<int64_t>(head)); ++i) {
          if (draws.below(30 + 20 * head, 10000 * step + 4000 * layer + 2000 * head + static_cast<uint64_t>(i)) > 0)
            kept[head].push_back(i);
        }
      }
      if (step % 3 != layer) cache.layers[layer].tail().keep(kept);  // not every layer each time
    }
    KvCache fresh = cache.clone();
    const std::span<const int32_t> some = std::span(tokens).subspan(at, step % 4 == 3 ? 3 : 1);
    ASSERT_EQ(fed(offloaded.model(), cache, some), fed(offloaded.model(), fresh, some)) << step;
    at += std::ssize(some);
    ++clones;
  }
  EXPECT_EQ(offloaded.device().mirrors().uploads(), clones);

  const std::vector<std::vector<int32_t>> few{{0, 3, 5}, {1, 2, 7}};
  (void)fed(offloaded.model(), cache, std::span(tokens).subspan(at, 1060));
  for (LayerCache& layer : cache.layers) layer.tail().keep(few);
  KvCache fresh = cache.clone();
  const std::span<const int32_t> last = std::span(tokens).last(2);
  EXPECT_EQ(fed(offloaded.model(), cache, last), fed(offloaded.model(), fresh, last));
  EXPECT_EQ(offloaded.device().mirrors().uploads(), clones + 2);  // little was left of it: both came anew
}

TEST(DeviceMirrors, CachesThatMadeRoomForOthersComeBack) {
  Offloaded grown_capacity;
  const DeviceCache whole(grown_capacity.device().model().shapes(), Placement::device, 512);
  const int64_t one = std::ranges::max(whole.bytes_by_device() | std::views::values);
  Offloaded tight(one + one / 2);
  const std::vector<int32_t> tokens = tiny_prompt(60);
  std::vector<std::vector<float>> logits[2];
  for (Offloaded* each : {&grown_capacity, &tight}) {
    KvCache a = each->model().make_cache(), b = each->model().make_cache();
    for (size_t at = 0; at < 60; at += 20) {
      for (KvCache* cache : {&a, &b})
        logits[each == &tight].push_back(fed(each->model(), *cache, std::span(tokens).subspan(at, 20)));
    }
  }
  EXPECT_EQ(logits[0], logits[1]);
  EXPECT_EQ(grown_capacity.device().mirrors().evictions(), 0);
  EXPECT_GE(tight.device().mirrors().evictions(), 4);
  EXPECT_GE(tight.device().mirrors().uploads(), 4);
}

TEST(DeviceMirrors, WhatKiviPacksWhileItDecodesStaysWithTheDevice) {
  Offloaded offloaded;
  const Prefill prompt = prefill(offloaded.model(), tiny_prompt(96), Needs{});
  EXPECT_EQ(offloaded.device().mirrors().uploads(), 0);
  const json spec{{"name", "kivi"}, {"group_size", 16}, {"residual_length", 32}};
  const Decoded answer = decode(offloaded.model(), prompt, spec, 40);
  EXPECT_GT(answer.activity.entries_packed, 0);
  const int64_t keys_packed = 1 + 40 / 32;  // at first, and each time that a residual is full
  EXPECT_EQ(offloaded.device().mirrors().uploads(), keys_packed);
}

TEST(DeviceMirrors, WhatLeavesIsMergedOnTheHostAndItsSuccessorsAloneGoUp) {
  for (const char* name : {"cam", "d2o"}) {
    Offloaded offloaded;
    const json spec{{"name", name}, {"keep", 0.5}};
    const Needs needs = make_method(spec, "test")->needs();
    const Prefill prompt = prefill(offloaded.model(), tiny_prompt(96), needs);
    const Decoded answer = decode(offloaded.model(), prompt, spec, 40);
    EXPECT_GT(answer.activity.entries_dropped, 40 * 2) << name;
    EXPECT_EQ(offloaded.device().mirrors().uploads(), 0) << name;
    EXPECT_EQ(offloaded.device().tokens_attended_on_host(), 0) << name;
  }
}

}  // namespace
}  // namespace kvarena::device
