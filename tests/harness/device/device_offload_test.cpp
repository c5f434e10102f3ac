// A Transformer whose passes run on a device (emulated here), with methods on the host: against the host alone, and
// that a request's bits are its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <set>

#include "harness/cache/quantized_segment.h"
#include "harness/engine/selection_meter.h"
#include "tests/support/decoding.h"
#include "tests/support/differences.h"
#include "tests/support/golden_model.h"
#include "tests/support/offloaded_model.h"
#include "tests/support/registered_method.h"

namespace kvarena::device {
namespace {

using nlohmann::json;
using testing::decode;
using testing::Decoded;
using testing::relative_error;
using testing::tiny_prompt;

const Needs kEverything{
    .prompt_attention = true, .window = 64, .hidden = true, .query_moments = {4}, .taps = {Tap::low}};

constexpr double kRounding = 2e-3;  // of float32 sums in another order, over the largest logit

TEST(DeviceOffload, WhatIsObservedOfAPromptIsWhatTheHostSees) {
  Transformer host = testing::tiny_model(1, kF32);
  Offloaded offloaded;
  const std::vector<int32_t> tokens = tiny_prompt(90);
  const Prefill want = prefill(host, tokens, kEverything), got = prefill(offloaded.model(), tokens, kEverything, 40);
  EXPECT_EQ(offloaded.device().tokens(), 90);
  EXPECT_LT(relative_error(got.logits, want.logits), 1e-4);
  for (size_t layer = 0; layer < want.observations.size(); ++layer) {
    const LayerObservations &a = got.observations[layer], &b = want.observations[layer];
    EXPECT_LT(relative_error(a.prompt_attention, b.prompt_attention), 1e-4);
    EXPECT_LT(relative_error(a.window_queries, b.window_queries), 1e-4);
    EXPECT_LT(relative_error(a.window_lse, b.window_lse), 1e-4);
    EXPECT_LT(relative_error(a.hidden, b.hidden), 1e-4);
    ASSERT_EQ(a.residual.size(), b.residual.size());
    EXPECT_LE(relative_error(a.residual, b.residual), b.residual.empty() ? 0 : 1e-4);
    for (size_t i = 0; i < b.query_moments.at(0).mean.size(); ++i)
      EXPECT_NEAR(a.query_moments.at(0).mean[i], b.query_moments.at(0).mean[i], 1e-4);
  }
}

TEST(DeviceOffload, SumsOverAPromptDoNotDependOnHowItWasCut) {
  Offloaded offloaded;
  const std::vector<int32_t> tokens = tiny_prompt(90);
  const Needs needs{.prompt_attention = true};
  const Prefill whole = prefill(offloaded.model(), tokens, needs), cut = prefill(offloaded.model(), tokens, needs, 32);
  for (size_t layer = 0; layer < whole.observations.size(); ++layer)
    EXPECT_EQ(cut.observations[layer].prompt_attention, whole.observations[layer].prompt_attention);
}

TEST(DeviceOffload, StatisticsOfAPromptAreTheHostsOnWhateverPiecesItComes) {
  const std::vector<int32_t> tokens = tiny_prompt(90);
  for (const char* name : {"keyformer", "roco", "scissorhands"}) {
    SCOPED_TRACE(name);
    Needs needs = make_method({{"name", name}, {"keep", 0.5}}, "test")->needs();
    needs.prompt_attention = true;
    Transformer host = testing::tiny_model(1, kF32);
    Offloaded offloaded;
    const Prefill want = prefill(host, tokens, needs), got = prefill(offloaded.model(), tokens, needs),
                  cut = prefill(offloaded.model(), tokens, needs, 32);
    EXPECT_EQ(offloaded.device().tokens_read_on_host(), 0);
    for (size_t layer = 0; layer < want.observations.size(); ++layer) {
      const LayerObservations &a = got.observations[layer], &b = want.observations[layer];
      EXPECT_LT(relative_error(a.prompt_attention, b.prompt_attention), 1e-4);
      ASSERT_EQ(a.statistics.size(), 1);
      const std::vector<float>&sums = a.statistics[0].sums, &there = b.statistics[0].sums;
      EXPECT_EQ(cut.observations[layer].statistics[0].sums, sums);
      if (std::string(name) == "scissorhands") {  // bits, of which one may turn where a mean is just its share
        int64_t others = 0;
        for (size_t i = 0; i < sums.size(); ++i)
          others += std::popcount(static_cast<uint32_t>(sums[i]) ^ static_cast<uint32_t>(there.at(i)));
        EXPECT_LT(others, 5);
        EXPECT_GT(std::ranges::count_if(sums, [](float word) { return word > 0; }), 100);
      } else {
        EXPECT_LT(relative_error(sums, there), 1e-4);
      }
    }
  }
}

/// Wants the last layer's sums and would notice being shown anything.
class SumsAlone final : public AttentionHooks, private kernels::AttentionReader {
 public:
  explicit SumsAlone(int64_t q_heads, int64_t entries) : entries_(entries), sums(q_heads * entries) {}

  [[nodiscard]] HookReach reach() const override { return HookReach::rows; }
  [[nodiscard]] kernels::AttentionReader* reader(int64_t layer, const LayerCache& /*cache*/,
                                                 const LayerQueries& /*queries*/) override {
    return layer == 1 ? this : nullptr;
  }

 private:
  void read(const kernels::AttentionRows& /*rows*/) override { ADD_FAILURE() << "shown though sums are all it wants"; }
  [[nodiscard]] std::vector<kernels::QuerySum> only_sums() override {
    return {{.what = kernels::ProbabilitySum{}, .data = sums.data(), .stride = entries_}};
  }

  int64_t entries_;

 public:
  std::vector<float> sums;  // [q_heads, entries]
};

TEST(DeviceOffload, EveryQueryGivesOneInAllToTheEntriesThatItSees) {
  Offloaded offloaded;
  const std::vector<int32_t> tokens = tiny_prompt(50);
  KvCache cache = offloaded.model().make_cache();
  (void)fed(offloaded.model(), cache, std::span(tokens).first(30));
  const LayerShape& shape = cache.layers[1].shape();
  SumsAlone hooks(shape.q_heads, 64);
  const SequencePass pass{.tokens = std::span(tokens).last(20), .cache = &cache, .hooks = &hooks};
  (void)offloaded.model().forward({&pass, 1});
  EXPECT_EQ(offloaded.device().tokens(), 50);
  for (int64_t h = 0; h < shape.q_heads; ++h) {
    const std::span<const float> row = std::span(hooks.sums).subspan(h * 64, 64);
    EXPECT_NEAR(std::accumulate(row.begin(), row.begin() + 50, 0.0), 20, 1e-4);
    EXPECT_EQ(std::ranges::count(row.last(14), 0.0F), 14);
    EXPECT_LE(row[49], 1);  // the last query alone sees the last entry
  }
}

TEST(DeviceOffload, ALatentsQueriesAreShownAsTheHostHasThem) {
  const testing::GoldenModel golden = testing::golden_model("deepseek_v2");
  Transformer host = golden.transformer(kF32), model = golden.transformer(kF32);
  model.offload_to(std::make_unique<DeviceOffload>(DeviceModel(golden.config, golden.checkpoint(), kF32), 1 << 30));
  std::vector<int32_t> tokens;
  for (int32_t i = 3; i < 40; ++i) tokens.push_back(i);
  const Needs needs{.prompt_attention = true, .window = 8};
  const Prefill want = prefill(host, tokens, needs), got = prefill(model, tokens, needs);
  for (size_t layer = 0; layer < want.observations.size(); ++layer) {
    const LayerObservations &a = got.observations[layer], &b = want.observations[layer];
    EXPECT_LT(relative_error(a.window_queries, b.window_queries), 1e-4);
    EXPECT_LT(relative_error(a.window_lse, b.window_lse), 1e-4);
    EXPECT_LT(relative_error(a.prompt_attention, b.prompt_attention), 1e-4);
  }
}

TEST(DeviceOffload, TheHostsCacheHoldsWhatTheDeviceComputedBitForBit) {
  Offloaded offloaded;
  const std::vector<int32_t> tokens = tiny_prompt(80);
  KvCache cache = offloaded.model().make_cache();
  const std::vector<float> first = fed(offloaded.model(), cache, std::span(tokens).first(60));
  EXPECT_EQ(cache.length, 60);
  EXPECT_EQ(offloaded.device().twins().uploads(), 0);  // it grew where it was computed
  KvCache copy = cache.clone();
  const std::vector<float> want = fed(offloaded.model(), cache, std::span(tokens).last(20));
  EXPECT_EQ(fed(offloaded.model(), copy, std::span(tokens).last(20)), want);  // brought from the host
  EXPECT_EQ(offloaded.device().twins().uploads(), 1);
}

TEST(DeviceOffload, WhatWasTakenBackOrChangedIsNotAttendedTo) {
  Offloaded offloaded;
  const std::vector<int32_t> tokens = tiny_prompt(80), other = tiny_prompt(20, 3);
  KvCache cache = offloaded.model().make_cache();
  (void)fed(offloaded.model(), cache, std::span(tokens).first(60));
  const std::vector<float> want = fed(offloaded.model(), cache, std::span(tokens).last(20));
  cache.truncate(60);
  (void)fed(offloaded.model(), cache, other);
  cache.truncate(60);
  EXPECT_EQ(fed(offloaded.model(), cache, std::span(tokens).last(20)), want);
  EXPECT_EQ(offloaded.device().twins().uploads(), 0);  // the device took back what the host did

  cache.truncate(60);
  const std::vector<float> zeros(32);
  cache.layers[1].tail().overwrite(1, 17, zeros.data(), nullptr);
  EXPECT_NE(fed(offloaded.model(), cache, std::span(tokens).last(20)), want);
  EXPECT_EQ(offloaded.device().twins().uploads(), 0);  // one entry came
  cache.truncate(60);
  cache.layers[1].tail().replace(17, zeros.data(), zeros.data(), 1, 0);
  (void)fed(offloaded.model(), cache, std::span(tokens).last(20));
  EXPECT_EQ(offloaded.device().twins().uploads(), 1);
}

TEST(DeviceOffload, WhatIsOverwrittenComesAlone) {
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
  EXPECT_EQ(offloaded.device().twins().uploads(), clones);
}

TEST(DeviceOffload, WhatTheHostGotElsewhereComesAlone) {
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
  EXPECT_EQ(offloaded.device().twins().uploads(), 0);

  KvCache left = offloaded.model().make_cache();
  (void)fed(offloaded.model(), left, some(0, 50));
  const std::vector<std::vector<int32_t>> kept{{3, 17, 40}, {0, 1, 2, 5, 8, 21, 33, 44, 49}};
  for (LayerCache& layer : left.layers) layer.tail().keep(kept);
  (void)fed(offloaded.model(), left, some(50, 4));  // comes whole
  take(left, 54, 13);                               // of each head other cells
  KvCache copy = left.clone();
  EXPECT_EQ(fed(offloaded.model(), left, some(67, 3)), fed(offloaded.model(), copy, some(67, 3)));
  EXPECT_EQ(offloaded.device().twins().uploads(), 2);  // that, and the clone
}

/// Packs all but fewer than 16 of the newest keys of every layer, and all but the 20 newest values, or under a
/// transform as many as keys. Whether keys were packed.
bool pack(KvCache& cache, const QuantizedFormat& format) {
  constexpr int64_t kBlock = 16, kResidual = 20;
  bool keys = false;
  for (LayerCache& layer : cache.layers) {
    if (layer.segments().size() == 1)
      layer.insert_before_tail(std::make_unique<QuantizedSegment>(layer.shape(), format, layer.ledger()));
    auto& packed = dynamic_cast<QuantizedSegment&>(*layer.segments().front());
    const int64_t due = layer.tail().entries(0) / kBlock * kBlock;
    if (due > 0) packed.take(layer.tail(), due);
    keys = due > 0;
    const int64_t exact = packed.unpacked_values() + layer.tail().entries(0);
    const int64_t stay = format.value_transform ? layer.tail().entries(0) : kResidual;
    packed.pack_values(std::clamp<int64_t>(exact - stay, 0, packed.unpacked_values()));
  }
  return keys;
}

TEST(DeviceOffload, WhatACodecPacksIsAttendedToWhereItLiesAndFollowsStepByStep) {
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
      const std::span<const int32_t> token = std::span(tokens).subspan(step, 1);
      KvCache there = cache.clone(), fresh = cache.clone();
      const std::vector<float> want = fed(host, there, token), whole = fed(offloaded.model(), fresh, token);
      const std::vector<float> got = fed(offloaded.model(), cache, token);
      ASSERT_EQ(got, whole) << step;
      ASSERT_LT(relative_error(got, want), 1e-4) << step;
      repacked += pack(cache, format) && step + 1 < kPrompt + kSteps ? 1 : 0;
    }
    EXPECT_EQ(offloaded.device().twins().uploads(), repacked + kSteps);  // packing values alone moves no run
  }
}

TEST(DeviceOffload, WhatALayerLetsGoIsDroppedFromItsCopyToo) {
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
  EXPECT_EQ(offloaded.device().twins().uploads(), clones);

  const std::vector<std::vector<int32_t>> few{{0, 3, 5}, {1, 2, 7}};
  (void)fed(offloaded.model(), cache, std::span(tokens).subspan(at, 1060));
  for (LayerCache& layer : cache.layers) layer.tail().keep(few);
  KvCache fresh = cache.clone();
  const std::span<const int32_t> last = std::span(tokens).last(2);
  EXPECT_EQ(fed(offloaded.model(), cache, last), fed(offloaded.model(), fresh, last));
  EXPECT_EQ(offloaded.device().twins().uploads(), clones + 2);  // little was left of it: both came anew
}

TEST(DeviceOffload, CachesThatMadeRoomForOthersComeBack) {
  Offloaded roomy;
  const int64_t one = DeviceCache(roomy.device().model().shapes(), Placement::device, 512).bytes();
  Offloaded tight(one + one / 2);
  const std::vector<int32_t> tokens = tiny_prompt(60);
  std::vector<std::vector<float>> logits[2];
  for (Offloaded* each : {&roomy, &tight}) {
    KvCache a = each->model().make_cache(), b = each->model().make_cache();
    for (size_t at = 0; at < 60; at += 20) {
      for (KvCache* cache : {&a, &b})
        logits[each == &tight].push_back(fed(each->model(), *cache, std::span(tokens).subspan(at, 20)));
    }
  }
  EXPECT_EQ(logits[0], logits[1]);
  EXPECT_EQ(roomy.device().twins().evictions(), 0);
  EXPECT_GE(tight.device().twins().evictions(), 4);
  EXPECT_GE(tight.device().twins().uploads(), 4);
}

TEST(DeviceOffload, WhatKiviPacksWhileItDecodesStaysWithTheDevice) {
  Offloaded offloaded;
  const Prefill prompt = prefill(offloaded.model(), tiny_prompt(96), Needs{});
  EXPECT_EQ(offloaded.device().twins().uploads(), 0);
  const json spec{{"name", "kivi"}, {"group_size", 16}, {"residual_length", 32}};
  const Decoded answer = decode(offloaded.model(), prompt, spec, 40);
  EXPECT_GT(answer.activity.entries_packed, 0);
  const int64_t keys_packed = 1 + 40 / 32;  // at first, and each time that a residual is full
  EXPECT_EQ(offloaded.device().twins().uploads(), keys_packed);
}

TEST(DeviceOffload, WhatLeavesIsMergedOnTheHostAndItsSuccessorsAloneGoUp) {
  for (const char* name : {"cam", "d2o"}) {
    Offloaded offloaded;
    const json spec{{"name", name}, {"keep", 0.5}};
    const Needs needs = make_method(spec, "test")->needs();
    const Prefill prompt = prefill(offloaded.model(), tiny_prompt(96), needs);
    const Decoded answer = decode(offloaded.model(), prompt, spec, 40);
    EXPECT_GT(answer.activity.entries_dropped, 40 * 2) << name;
    EXPECT_EQ(offloaded.device().twins().uploads(), 1) << name;  // the prompt's, of which decoding has a clone
    EXPECT_EQ(offloaded.device().tokens_attended_on_host(), 0) << name;
  }
}

/// Of rows of random queries at a cache's end, what a layer's entries are given: [q_heads, entries].
std::vector<float> probabilities(const KvCache& cache, size_t layer, int64_t q_len, bool causal) {
  const EntrySegment& tail = cache.layers[layer].tail();
  const LayerShape& shape = tail.shape();
  const RandomStream draws(17, "queries");
  std::vector<float> q(static_cast<size_t>(q_len * shape.q_heads * shape.head_dim));
  for (size_t i = 0; i < q.size(); ++i) q[i] = 4 * static_cast<float>(draws.uniform(i)) - 2;
  const std::vector<float> lse(static_cast<size_t>(q_len * shape.q_heads), 3.0F);
  const int64_t stride = std::max(tail.entries(0), tail.entries(1)) + 7;  // rows are parts of longer ones
  std::vector<float> sums(static_cast<size_t>((shape.q_heads - 1) * stride + tail.entries(1)), 0.5F);
  const LayerQueries queries{
      .q = q.data(), .q_len = q_len, .q_stride = shape.q_heads * shape.head_dim, .position = cache.length - q_len};
  tail.add_probabilities(queries, causal, lse.data(), sums.data(), stride);
  return sums;
}

TEST(DeviceOffload, ProbabilitiesAreComputedWhereACopyIsAsLongAsItIsOne) {
  Offloaded offloaded;
  const CacheTwins& twins = offloaded.device().twins();
  const std::vector<int32_t> tokens = tiny_prompt(90);
  KvCache cache = offloaded.model().make_cache();
  (void)fed(offloaded.model(), cache, std::span(tokens).first(70));
  int64_t asked = 0;
  const auto expect_looked_up = [&](const KvCache& where, size_t layer, bool by_device, int64_t newest = 5) {
    SCOPED_TRACE(++asked);
    KvCache host = where.clone();  // which no copy knows
    host.layers[layer].tail().mark({}, 0);
    for (const bool causal : {true, false}) {
      for (const int64_t q_len : {1, 5}) {
        SCOPED_TRACE(std::to_string(q_len) + (causal ? " causal" : " all"));
        const int64_t before = twins.lookups();
        const std::vector<float> got = probabilities(where, layer, q_len, causal);
        EXPECT_EQ(twins.lookups() - before, by_device && (!causal || q_len <= newest) ? 1 : 0);
        EXPECT_LT(relative_error(got, probabilities(host, layer, q_len, causal)), 1e-5);
      }
    }
  };
  expect_looked_up(cache, 0, true);
  expect_looked_up(cache, 1, true);
  KvCache clone = cache.clone();
  expect_looked_up(clone, 1, true);

  const std::vector<std::vector<int32_t>> kept{{3, 17, 40, 66}, {0, 1, 2, 5, 8, 21, 33, 44, 69}};
  cache.layers[1].tail().keep(kept);
  expect_looked_up(cache, 0, true);
  expect_looked_up(cache, 1, false);  // it let go of what the copy has
  expect_looked_up(clone, 1, true);
  (void)fed(offloaded.model(), cache, std::span(tokens).subspan(70, 1));
  expect_looked_up(cache, 1, true, 1);  // which now is the same by its list, where one token is the newest
  expect_looked_up(clone, 1, false);    // of an earlier time
  const std::vector<float> row(32, 1.0F);
  cache.layers[1].tail().overwrite(0, 2, row.data(), nullptr);
  expect_looked_up(cache, 1, false);
  (void)fed(offloaded.model(), cache, std::span(tokens).subspan(71, 1));
  expect_looked_up(cache, 1, true, 2);
  KvCache last = cache.clone();
  cache.twin.reset();
  expect_looked_up(cache, 1, false);
  expect_looked_up(last, 1, false);
}

/// Wants to be asked before attention and after, of every layer in order.
class Steering final : public AttentionHooks {
 public:
  void before_pass(KvCache& /*cache*/, std::span<const int32_t> tokens) override {
    EXPECT_TRUE(calls.empty() || calls.back() == -1);
    calls = {static_cast<int64_t>(tokens.size())};
  }
  void before_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries) override {
    EXPECT_EQ(calls.back(), layer == 0 ? queries.q_len : 2 * layer - 1);
    EXPECT_EQ(cache.entries(0), queries.position + queries.q_len);
    calls.push_back(2 * layer);
  }
  void after_attention(int64_t layer, LayerCache& /*cache*/, const LayerQueries& /*queries*/,
                       const float* lse) override {
    EXPECT_EQ(calls.back(), 2 * layer);
    EXPECT_TRUE(std::isfinite(lse[0]));
    calls.push_back(2 * layer + 1);
  }
  void after_layer(int64_t layer, const float* /*rows*/, int64_t /*count*/, int64_t /*hidden_size*/) override {
    layers.push_back(layer);
  }
  std::vector<int64_t> calls, layers;
};

TEST(DeviceOffload, AttentionThatHooksSteerIsTheHostsWithinTheDevicesPass) {
  for (const std::string& name : testing::golden_model_names()) {
    SCOPED_TRACE(name);
    const testing::GoldenModel golden = testing::golden_model(name);
    Transformer host = golden.transformer(kF32), model = golden.transformer(kF32);
    auto owned =
        std::make_unique<DeviceOffload>(DeviceModel(golden.config, golden.checkpoint(), kF32), int64_t{1} << 30);
    const DeviceOffload& device = *owned;
    model.offload_to(std::move(owned));
    std::vector<int32_t> tokens;
    for (int32_t i = 3; i < 40; ++i) tokens.push_back(i);
    KvCache near = host.make_cache(), far = model.make_cache();
    for (const auto& [first, count] : {std::pair{0, 20}, {20, 16}, {36, 1}}) {
      Steering hooks;
      const std::span<const int32_t> some = std::span(tokens).subspan(first, count);
      const SequencePass pass{.tokens = some, .cache = &far, .hooks = &hooks, .logits = LogitsRows::all};
      const std::span<const float> got = model.forward({&pass, 1});
      EXPECT_LT(relative_error(got, fed(host, near, some)), 1e-4);
      EXPECT_EQ(std::ssize(hooks.calls), 1 + 2 * golden.config.layers);
      EXPECT_EQ(std::ssize(hooks.layers), golden.config.layers);
    }
    EXPECT_EQ(far.length, 37);
    EXPECT_EQ(device.tokens(), 37);
    EXPECT_EQ(device.twins().uploads(), 0);
  }
}

TEST(DeviceOffload, ATreesLogitsAreTheHosts) {
  Transformer host = testing::tiny_model(1, kF32);
  Offloaded offloaded;
  const std::vector<int32_t> prompt = tiny_prompt(40), tokens{5, 9, 11, 7, 3}, parents{-1, 0, 0, 2, -1};
  std::vector<std::vector<float>> logits;
  for (Transformer* model : {&host, &offloaded.model()}) {
    KvCache cache = model->make_cache();
    (void)fed(*model, cache, prompt);
    const SequencePass pass{.tokens = tokens, .cache = &cache, .logits = LogitsRows::all, .parents = parents};
    const std::span<const float> rows = model->forward({&pass, 1});
    logits.emplace_back(rows.begin(), rows.end());
  }
  EXPECT_LT(relative_error(logits[1], logits[0]), 1e-4);
  EXPECT_EQ(offloaded.device().tokens(), 45);
}

/// Requests that attend on the device and on the host, and one whose prompt is read, in the same passes.
TEST(DeviceOffload, BitsDoNotDependOnWhoElseIsInAPassWhereverThatIsComputed) {
  Offloaded offloaded;
  const Prefill prompt = prefill(offloaded.model(), tiny_prompt(90), kEverything);
  const std::vector<json> specs = {{{"name", "full"}},
                                   {{"name", "snapkv"}, {"keep", 0.5}},
                                   {{"name", "quest"}, {"keep", 0.5}},
                                   {{"name", "kivi"}, {"bits", 4}, {"group_size", 32}},
                                   {{"name", "specache"}, {"k", 8}}};
  std::vector<std::unique_ptr<Method>> methods;
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Session*> running;
  std::vector<testing::Logits> logits(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    methods.push_back(make_method(specs[i], "test"));
    sessions.push_back(
        testing::start_noted(offloaded.model(), prompt, *methods[i], logits[i], {.stop = {.max_new_tokens = 6}}));
    running.push_back(sessions.back().get());
  }
  run_together(offloaded.model(), running);
  for (size_t i = 0; i < specs.size(); ++i)
    EXPECT_EQ(logits[i], decode(offloaded.model(), prompt, specs[i], 6).logits) << specs[i];
}

/// What a method chose is attended to on the device, by lists of a kv head or of a query head.
TEST(DeviceOffload, WhoeverIsMeasuredDecodesWhatOthersDo) {
  Transformer host = testing::tiny_model(1, kF32);
  Offloaded offloaded;
  for (const json& spec : {json{{"name", "quest"}, {"tokens", 32}}, json{{"name", "ideal_topk"}, {"keep", 0.3}},
                           json{{"name", "snapkv"}, {"keep", 0.5}}}) {
    SCOPED_TRACE(spec.dump());
    std::vector<Decoded> plain;
    std::vector<std::vector<double>> rates;
    for (Transformer* model : {&offloaded.model(), &host}) {
      const Prefill prompt = prefill(*model, tiny_prompt(90), kEverything);
      SelectionMeter meter(prompt.cache);
      plain.push_back(decode(*model, prompt, spec, 12));
      const Decoded measured = decode(*model, prompt, spec, 12, {.meter = &meter});
      EXPECT_EQ(measured.logits, plain.back().logits);
      rates.push_back(meter.layer_hit_rates());
    }
    EXPECT_EQ(plain[0].tokens, plain[1].tokens);
    EXPECT_EQ(plain[0].activity.entries_skipped, plain[1].activity.entries_skipped);
    for (size_t layer = 0; layer < rates[0].size(); ++layer) EXPECT_NEAR(rates[0][layer], rates[1][layer], 1e-3);
  }
  EXPECT_EQ(offloaded.device().tokens_attended_on_host(), 0);
}

/// Where all that is packed comes back, the copy is not attended to at all.
TEST(DeviceOffload, EntriesThatComeBackTakeTheirCopiesPlace) {
  Transformer host = testing::tiny_model(1, kF32);
  Offloaded offloaded;
  const json kivi{{"name", "kivi"}, {"bits", 2}, {"group_size", 16}, {"residual_length", 32}},
      turned{{"name", "quarot_kv"}, {"bits", 4}};
  const Prefill prompt = prefill(offloaded.model(), tiny_prompt(90), kEverything);
  const Decoded full = decode(offloaded.model(), prompt, {{"name", "full"}}, 12);
  for (const json& copy : {kivi, turned}) {
    for (const bool speculative : {true, false}) {
      for (const int k : {6, 1000}) {
        const json spec{
            {"name", "specache"}, {"k", k}, {"copy", copy}, {"speculative", speculative}, {"elastic", k == 6}};
        SCOPED_TRACE(spec.dump());
        const Decoded got = decode(offloaded.model(), prompt, spec, 12, {.forced = full.tokens}),
                      want = decode(host, prompt, spec, 12, {.forced = full.tokens});
        EXPECT_GT(got.activity.traffic.loaded_bytes, 0);
        double from_host = 0, from_full = 0;
        for (size_t i = 0; i < full.logits.size(); ++i) {
          from_host = std::max(from_host, relative_error(got.logits.at(i), want.logits.at(i)));
          from_full = std::max(from_full, relative_error(got.logits.at(i), full.logits[i]));
        }
        EXPECT_LT(from_host, kRounding);
        if (k == 1000) {
          EXPECT_LT(from_full, 1e-4);
        } else {
          EXPECT_GT(from_full, 1e-2);
        }
      }
    }
  }
  EXPECT_EQ(offloaded.device().tokens_attended_on_host(), 0);
}

/// Any method gives on a device what it gives on the host, within rounding: its own part is the host's anyway. Where it
/// packs entries, the last bit of a number decides now and then which code it gets: together that must cost less than
/// packing does.
class EveryMethodOnADevice : public testing::RegisteredMethod {
 protected:
  using Forced = std::optional<std::vector<int32_t>>;

  [[nodiscard]] Decoded answer(Transformer& model, const json& spec, Forced forced) const {
    const Needs needs = make_method(testing::active_settings(entry()), "test")->needs();
    const Prefill prompt = prefill(model, tiny_prompt(96), needs, kPrefillChunk, model_facts(model, {fitted_folder()}));
    const int64_t count = forced ? static_cast<int64_t>(forced->size()) : 8;
    return decode(model, prompt, spec, count, {.forced = std::move(forced)});
  }
};

/// Of all rows, which are equally long.
double mean_difference(const testing::Logits& a, const testing::Logits& b) {
  double sum = 0;
  for (size_t row = 0; row < a.size(); ++row) sum += testing::mean_difference(a[row], b.at(row));
  return sum / static_cast<double>(a.size());
}

/// Those that attend to codes in a form of their own, or to a view of something else than the tail.
const std::set<std::string> kAttendOnTheHost{"gear",      "infllm",   "kvquant", "minicache",
                                             "quantspec", "rotatekv", "shadowkv"};

TEST_P(EveryMethodOnADevice, AnswersAsOnTheHost) {
  const json spec = testing::active_settings(entry());
  Transformer host = testing::tiny_model(1, kF32);
  Offloaded offloaded;
  const std::vector<int32_t> tokens = answer(host, spec, std::nullopt).tokens;
  const bool drafts = make_method(spec, "test")->verifier() != nullptr;
  const Forced forced = drafts ? std::nullopt : Forced(tokens);
  const Decoded want = answer(host, spec, forced), got = answer(offloaded.model(), spec, forced);
  EXPECT_GE(offloaded.device().tokens(), 96);
  EXPECT_EQ(offloaded.device().tokens_attended_on_host() > 0, kAttendOnTheHost.contains(entry().info.name));
  EXPECT_EQ(got.failure, want.failure);
  EXPECT_EQ(got.tokens, want.tokens);
  ASSERT_EQ(got.logits.size(), want.logits.size());
  if (drafts) {
    EXPECT_EQ(got.logits, answer(offloaded.model(), {{"name", "full"}}, forced).logits);  // lossless bit for bit
  }
  double error = 0;
  for (size_t i = 0; i < want.logits.size(); ++i)
    error = std::max(error, relative_error(got.logits[i], want.logits[i]));
  if (error > kRounding && want.activity.entries_packed > 0) {
    const Decoded full = answer(host, {{"name", "full"}}, forced);
    EXPECT_LT(mean_difference(got.logits, want.logits), mean_difference(want.logits, full.logits));
    EXPECT_NEAR(static_cast<double>(got.resident_bytes), static_cast<double>(want.resident_bytes),
                .01 * static_cast<double>(want.resident_bytes));
    return;
  }
  EXPECT_LT(error, kRounding);
  EXPECT_EQ(got.resident_bytes, want.resident_bytes);
}

INSTANTIATE_TEST_SUITE_P(Registered, EveryMethodOnADevice, ::testing::ValuesIn(testing::method_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace kvarena::device
