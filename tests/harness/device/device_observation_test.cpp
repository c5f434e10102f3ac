// What hooks see of passes that a device computes: sums over a prompt, statistics, probabilities.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "harness/cache/quantized_segment.h"
#include "tests/support/decoding.h"
#include "tests/support/differences.h"
#include "tests/support/golden_model.h"
#include "tests/support/observing.h"
#include "tests/support/offloaded_model.h"
#include "tests/support/packed_cache.h"

namespace kvarena::device {
namespace {

using testing::kEverything;
using testing::pack;
using testing::relative_error;
using testing::tiny_prompt;

TEST(DeviceObservation, WhatIsObservedOfAPromptIsWhatTheHostSees) {
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

TEST(DeviceObservation, SumsOverAPromptDoNotDependOnHowItWasCut) {
  Offloaded offloaded;
  const std::vector<int32_t> tokens = tiny_prompt(90);
  const Needs needs{.prompt_attention = true};
  const Prefill whole = prefill(offloaded.model(), tokens, needs), cut = prefill(offloaded.model(), tokens, needs, 32);
  for (size_t layer = 0; layer < whole.observations.size(); ++layer)
    EXPECT_EQ(cut.observations[layer].prompt_attention, whole.observations[layer].prompt_attention);
}

TEST(DeviceObservation, StatisticsOfAPromptAreTheHostsOnWhateverPiecesItComes) {
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

TEST(DeviceObservation, EveryQueryGivesOneInAllToTheEntriesThatItSees) {
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

TEST(DeviceObservation, ALatentsQueriesAreShownAsTheHostHasThem) {
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

TEST(DeviceObservation, ProbabilitiesAreComputedWhereACopyIsAsLongAsItIsOne) {
  Offloaded offloaded;
  const CacheTwins& twins = offloaded.device().twins();
  const std::vector<int32_t> tokens = tiny_prompt(90);
  KvCache cache = offloaded.model().make_cache();
  (void)fed(offloaded.model(), cache, std::span(tokens).first(70));
  int64_t asked = 0;
  const auto expect_looked_up = [&](const KvCache& where, size_t layer, bool by_device, int64_t newest = 5) {
    SCOPED_TRACE(++asked);
    KvCache host = where.clone();  // which no copy knows
    host.layers[layer].tail().mark({});
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

TEST(DeviceObservation, ProbabilitiesOfPackedEntriesAreComputedWhereTheirCopyIs) {
  const RowTransformPtr turned = random_rotation(32, 3);
  const kernels::QuantFormat two{.bits = 2, .group_size = 16};
  Offloaded offloaded;
  const std::vector<int32_t> tokens = tiny_prompt(90);
  const CacheTwins& twins = offloaded.device().twins();
  KvCache cache = offloaded.model().make_cache();
  (void)fed(offloaded.model(), cache, std::span(tokens).first(70));
  (void)pack(cache, {.keys = two, .values = two, .key_transform = turned});
  (void)fed(offloaded.model(), cache, std::span(tokens).subspan(70, 1));
  const LayerShape& shape = cache.layers[1].shape();
  auto& packed = dynamic_cast<QuantizedSegment&>(*cache.layers[1].segments().front());
  const std::vector<float> q(static_cast<size_t>(shape.q_heads * shape.head_dim), 0.7F),
      lse(static_cast<size_t>(shape.q_heads), 2.0F);
  const LayerQueries queries{
      .q = q.data(), .q_len = 1, .q_stride = shape.q_heads * shape.head_dim, .position = cache.length - 1};
  const std::vector<std::vector<int32_t>> lists{{0, 5, 6, 31, 60}, {2, 3}};
  const auto sums = [&](const QuantizedSegment& of, bool listed, bool by_device) {
    std::vector<float> row(static_cast<size_t>(shape.q_heads * of.entries(0)));
    const int64_t before = twins.lookups();
    if (listed) {
      of.add_listed_probabilities(lists, queries, lse.data(), row.data(), of.entries(0));
    } else {
      of.add_probabilities(queries, /*causal=*/false, lse.data(), row.data(), of.entries(0));
    }
    EXPECT_EQ(twins.lookups() - before, by_device ? 1 : 0);
    return row;
  };
  const std::unique_ptr<Segment> clone = packed.clone(std::make_shared<MemoryLedger>());
  auto& host = dynamic_cast<QuantizedSegment&>(*clone);
  EXPECT_EQ(packed.entries(0), 64);
  for (const bool listed : {false, true}) {
    const std::vector<float> got = sums(packed, listed, true);
    EXPECT_EQ(sums(host, listed, true), got);  // a clone is what its model was
    EXPECT_GT(std::ranges::max(got), 0);
  }
  host.mark({});
  for (const bool listed : {false, true})
    EXPECT_LT(relative_error(sums(packed, listed, true), sums(host, listed, false)), 1e-5);
  (void)fed(offloaded.model(), cache, std::span(tokens).subspan(71, 12));
  (void)pack(cache, {.keys = two, .values = two, .key_transform = turned});
  EXPECT_EQ(packed.entries(0), 80);
  (void)sums(packed, false, false);  // more is packed than the copy has
}

}  // namespace
}  // namespace kvarena::device
