// Observations of hooks in passes that a device computes: sums over a prompt, statistics, probabilities.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

#include "harness/cache/attend_plan.h"
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

  [[nodiscard]] HookAccess reach() const override { return HookAccess::rows; }
  [[nodiscard]] kernels::AttentionReader* reader(int64_t layer, const LayerCache& /*cache*/,
                                                 const LayerQueries& /*queries*/) override {
    return layer == 1 ? this : nullptr;
  }

 private:
  void read(const kernels::ProbabilityRows& /*rows*/) override {
    ADD_FAILURE() << "shown though sums are all it wants";
  }
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
  model.offload_to(std::make_unique<DeviceOffload>(
      DeviceModel(golden.config, golden.checkpoint(), kF32, spread_layers(golden.config.layers)), 1 << 30));
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

/// [q_heads, entries] with room between rows: what the pass's queries gave to each entry of the tail.
std::vector<float> probabilities(const EntrySegment& tail, const LayerQueries& queries, bool causal, const float* lse) {
  const LayerShape& shape = tail.shape();
  const int64_t stride = std::max(tail.entries(0), tail.entries(1)) + 7;  // rows are parts of longer ones
  std::vector<float> sums(static_cast<size_t>((shape.q_heads - 1) * stride + tail.entries(1)), 0.5F);
  add_probabilities(causal ? tail.plan_newest(queries) : plan_of(tail, queries), lse, sums.data(), stride);
  return sums;
}

/// Probabilities of a packed segment, or of some of its entries.
std::vector<float> probabilities(const QuantizedSegment& packed, const EntryLists* listed, const LayerQueries& queries,
                                 const float* lse) {
  const int64_t stride = packed.entries(0);
  std::vector<float> sums(static_cast<size_t>(packed.shape().q_heads * stride));
  AttentionPlan plan = plan_of(packed, queries);
  if (listed != nullptr) plan.items.front().lists.assign(listed->begin(), listed->end());
  add_probabilities(plan, lse, sums.data(), stride);
  return sums;
}

/// Compares what segments say after attention with what clones say, which no copy knows.
class Asking final : public AttentionHooks {
 public:
  explicit Asking(const DeviceMirrors& mirrors) : mirrors_(&mirrors) {}

  [[nodiscard]] HookAccess reach() const override { return HookAccess::rows; }
  void after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) override {
    LayerCache host = cache.clone(cache.ledger());
    const auto expect_same = [&](bool by_device, const auto& ask) {
      const int64_t before = mirrors_->lookups();
      const std::vector<float> got = ask(cache);
      EXPECT_EQ(mirrors_->lookups() - before, by_device ? 1 : 0);
      EXPECT_LT(relative_error(got, ask(host)), 1e-4);
      EXPECT_EQ(mirrors_->lookups() - before, by_device ? 1 : 0);
    };
    const auto of_tail = [&](bool causal) {
      return [&, causal](LayerCache& from) { return probabilities(from.tail(), queries, causal, lse); };
    };
    expect_same(true, of_tail(true));
    expect_same(true, of_tail(false));
    const EntryLists lists{{0, 5, 6, 31, 60}, {2, 3}};
    for (const EntryLists* listed : {&lists, static_cast<const EntryLists*>(nullptr)}) {
      if (cache.segments().size() == 1) break;
      expect_same(true, [&](LayerCache& from) {
        return probabilities(dynamic_cast<QuantizedSegment&>(*from.segments().front()), listed, queries, lse);
      });
    }
    if (change) change(layer, cache, host);
    if (change) expect_same(false, of_tail(false));  // it is no copy any more
    ++asked;
  }

  std::function<void(int64_t layer, LayerCache& cache, LayerCache& host)> change;
  int64_t asked = 0;

 private:
  const DeviceMirrors* mirrors_;
};

TEST(DeviceObservation, ProbabilitiesAreComputedWhereACopyIsAsLongAsItIsOne) {
  Offloaded offloaded;
  const std::vector<int32_t> tokens = tiny_prompt(90);
  KvCache cache = offloaded.model().make_cache();
  Asking hooks(offloaded.device().mirrors());
  int64_t fed_so_far = 0;
  const auto feed = [&](int64_t count) {
    const SequencePass pass{.tokens = std::span(tokens).subspan(fed_so_far, count), .cache = &cache, .hooks = &hooks};
    (void)offloaded.model().forward({&pass, 1});
    fed_so_far += count;
  };
  feed(60);
  hooks.change = [](int64_t layer, LayerCache& own, LayerCache& host) {
    if (layer == 0) {
      const std::vector<std::vector<int32_t>> kept{{3, 17, 40, 59}, {0, 1, 2, 5, 8, 21, 33, 44, 59}};
      for (LayerCache* each : {&own, &host}) each->tail().keep(kept);
    } else {
      const std::vector<float> row(32, 1.0F);
      for (LayerCache* each : {&own, &host}) each->tail().overwrite(1, 21, row.data(), nullptr);
    }
  };
  feed(1);
  hooks.change = nullptr;
  feed(1);  // now by a list, and with what was overwritten
  feed(5);
  hooks.change = [](int64_t /*layer*/, LayerCache& own, LayerCache& host) {
    const std::vector<float> rows(2 * 32, 1.0F);
    for (LayerCache* each : {&own, &host}) each->append(rows.data(), rows.data(), 1, 64, 90);
    for (LayerCache* each : {&own, &host}) each->tail().replace(0, rows.data(), rows.data(), 1, 64);
  };
  feed(1);
  EXPECT_EQ(hooks.asked, 5 * std::ssize(cache.layers));
  const int64_t before = offloaded.device().mirrors().lookups();
  const std::vector<float> q(2 * 64, 1.0F), lse(4, 2.0F);
  const LayerShape& shape = cache.layers[0].shape();
  ASSERT_LE(shape.q_heads * shape.head_dim, std::ssize(q));
  (void)probabilities(cache.layers[0].tail(), {.q = q.data(), .q_len = 1, .q_stride = 128}, false, lse.data());
  EXPECT_EQ(offloaded.device().mirrors().lookups(), before);  // nobody looks at a pass
}

TEST(DeviceObservation, ProbabilitiesOfPackedEntriesAreComputedWhereTheirCopyIs) {
  const kernels::QuantFormat two{.bits = 2, .group_size = 16};
  const QuantizedFormat format{.keys = two, .values = two, .key_transform = random_rotation(32, 3)};
  Offloaded offloaded;
  const std::vector<int32_t> tokens = tiny_prompt(90);
  KvCache cache = offloaded.model().make_cache();
  (void)fed(offloaded.model(), cache, std::span(tokens).first(70));
  (void)pack(cache, format);
  Asking hooks(offloaded.device().mirrors());
  for (const auto& [first, count] : {std::pair<size_t, size_t>{70, 1}, {71, 12}, {83, 1}}) {
    const SequencePass pass{.tokens = std::span(tokens).subspan(first, count), .cache = &cache, .hooks = &hooks};
    (void)offloaded.model().forward({&pass, 1});
    (void)pack(cache, format);
  }
  EXPECT_EQ(hooks.asked, 3 * std::ssize(cache.layers));
}

}  // namespace
}  // namespace kvarena::device
