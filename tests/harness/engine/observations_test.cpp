// Observations of a prefill beyond attention sums: moments of queries, the future, a repetition of the prompt.

#include <gtest/gtest.h>

#include <cmath>

#include "harness/cache/attend_plan.h"
#include "harness/core/error.h"
#include "harness/engine/session/prefill.h"
#include "harness/engine/session/query_moments.h"
#include "harness/engine/session/session.h"
#include "tests/support/random_entries.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using testing::random_floats;
using testing::tiny_model;
using testing::tiny_prompt;

const Reconstruction kRepeat{.chunk = 40, .first = "first", .next = "next"};

TEST(QueryMomentsTest, TurnQueriesBackAndLeaveOutTheFirst) {
  const LayerShape shape{.q_heads = 1, .kv_heads = 1, .head_dim = 2};
  BackRotation rotation({.inverse = {0.5}});
  const std::vector<std::array<double, 2>> plain = {{9, 9}, {1, 2}, {3, -2}, {2, 6}};
  std::vector<float> turned;
  for (size_t t = 0; t < plain.size(); ++t) {
    const double angle = 0.5 * static_cast<double>(t);
    turned.push_back(static_cast<float>(plain[t][0] * std::cos(angle) - plain[t][1] * std::sin(angle)));
    turned.push_back(static_cast<float>(plain[t][0] * std::sin(angle) + plain[t][1] * std::cos(angle)));
  }
  QueryMoments moments{.left_out = 1};
  for (int64_t t = 0; t < 4; t += 2) {  // in two passes
    add_moments(moments, shape, rotation, {.q = turned.data() + 2 * t, .q_len = 2, .q_stride = 2, .position = t});
  }
  finish_moments(moments);
  EXPECT_EQ(moments.count, 3);
  EXPECT_NEAR(moments.mean[0], 2, 1e-6);
  EXPECT_NEAR(moments.mean[1], 2, 1e-6);
  EXPECT_NEAR(moments.covariance[0], 2.0 / 3, 1e-5);   // of 1, 3, 2
  EXPECT_NEAR(moments.covariance[3], 32.0 / 3, 1e-5);  // of 2, -2, 6
  EXPECT_NEAR(moments.covariance[1], -4.0 / 3, 1e-5);
  EXPECT_EQ(moments.covariance[1], moments.covariance[2]);
}

TEST(Observations, TappedResidualsAreWhatTheModelPredictsFrom) {
  Transformer model = tiny_model();
  EXPECT_EQ(tapped_layer(Tap::low, 30), 1);  // the inputs of layers 2, 15 and 27
  EXPECT_EQ(tapped_layer(Tap::middle, 30), 14);
  EXPECT_EQ(tapped_layer(Tap::high, 30), 26);
  EXPECT_EQ(tapped_layer(Tap::high, 3), 0);  // a model of so few layers has no other
  const Needs needs{.taps = {Tap::low, Tap::last}};
  const std::vector<int32_t> tokens = tiny_prompt(60);
  const Prefill whole = prefill(model, tokens, needs, 1000);
  const Prefill cut = prefill(model, tokens, combine({}, needs), 23);
  for (size_t layer = 0; layer < 3; ++layer) {
    const std::vector<float>& residual = whole.observations[layer].residual;
    EXPECT_EQ(residual.size(), layer == 0 ? 0U : 60U * 64U);
    EXPECT_EQ(residual, cut.observations[layer].residual);
  }
  std::vector<float> logits(128);
  model.predict(whole.observations[2].residual.data() + 59 * 64, 1, logits.data());
  EXPECT_EQ(logits, whole.logits);
}

TEST(Observations, DoNotDependOnHowThePromptIsCut) {
  Transformer model = tiny_model();
  const Needs needs{.future = 5, .query_moments = {0, 4}, .reconstructions = {kRepeat}};
  const std::vector<int32_t> tokens = tiny_prompt(130);
  const Prefill whole = prefill(model, tokens, needs, 1000);
  const Prefill cut = prefill(model, tokens, needs, 23);
  for (size_t layer = 0; layer < whole.observations.size(); ++layer) {
    const LayerObservations& a = whole.observations[layer];
    const LayerObservations& b = cut.observations[layer];
    EXPECT_EQ(a.future_attention, b.future_attention);
    ASSERT_EQ(a.query_moments.size(), 2U);
    for (size_t i = 0; i < a.query_moments[1].covariance.size(); ++i) {
      ASSERT_NEAR(a.query_moments[1].covariance[i], b.query_moments[1].covariance[i], 1e-9);
    }
    for (size_t i = 0; i < a.reconstructions[0].scores.size(); ++i) {
      ASSERT_NEAR(a.reconstructions[0].scores[i], b.reconstructions[0].scores[i], 2e-6);
    }
  }
}

/// The attention that an entry receives from its group.
class Received final : public PromptStatistic {
 public:
  explicit Received(std::string id) : id_(std::move(id)) {}
  std::string id() const override { return id_; }
  int64_t width() const override { return 1; }
  void add(const QueryRows& queries, std::span<float> sums) const override {
    const kernels::ProbabilityRows& rows = queries.rows;
    for (int64_t row = 0; row < rows.tokens * rows.group; ++row) {
      const int64_t token = row / rows.group;
      EXPECT_EQ(rows.low[token], 0);
      EXPECT_EQ(rows.high[token], queries.position + token + 1);
      for (int64_t i = 0; i < rows.high[token]; ++i) sums[i] += rows.probability(row, i);
    }
  }

 private:
  std::string id_;
};

TEST(Observations, StatisticsSeeEveryQueryInOrderHoweverThePromptIsCut) {
  Transformer model = tiny_model();
  const Needs one{.prompt_attention = true, .statistics = {std::make_shared<Received>("a")}};
  const Needs two{.statistics = {std::make_shared<Received>("a"), std::make_shared<Received>("b")}};
  const Needs needs = combine(one, two);
  ASSERT_EQ(needs.statistics.size(), 2U);
  const std::vector<int32_t> tokens = tiny_prompt(150);
  const Prefill whole = prefill(model, tokens, needs, 1000);
  const Prefill cut = prefill(model, tokens, needs, 23);
  for (size_t layer = 0; layer < whole.observations.size(); ++layer) {
    const LayerObservations& seen = whole.observations[layer];
    ASSERT_EQ(seen.statistics.size(), 2U);
    EXPECT_EQ(seen.statistics[1].id, "b");
    EXPECT_EQ(seen.statistics[0].sums, seen.statistics[1].sums);
    EXPECT_EQ(seen.statistics[0].sums, cut.observations[layer].statistics[0].sums);
    for (size_t i = 0; i < 300; ++i) {  // two kv heads, each of two query heads
      const size_t head = i / 150 * 2;
      const float sum = seen.prompt_attention[head * 150 + i % 150] + seen.prompt_attention[(head + 1) * 150 + i % 150];
      EXPECT_NEAR(seen.statistics[0].sums[i], sum, 2e-5 * sum);
    }
  }
}

TEST(Observations, ExtraPassesLeaveThePromptsCacheAsItWas) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(90);
  const Prefill plain = prefill(model, tokens, {});
  const Prefill observed = prefill(model, tokens, {.future = 5, .reconstructions = {kRepeat}});
  EXPECT_EQ(observed.logits, plain.logits);
  EXPECT_EQ(observed.cache.bytes(), plain.cache.bytes());
  EXPECT_EQ(observed.cache.length, plain.cache.length);
}

/// Full KV that sums what its steps attend to.
class Listener final : public Method {
 public:
  void observe(LayerContext& layer, const LayerQueries& queries, const float* lse) const override {
    if (layer.layer != 1) return;
    const int64_t n = layer.cache.tail().entries(0);
    std::vector<float> step(static_cast<size_t>(4 * n), 0.0F);
    add_probabilities(layer.cache.tail().plan_newest(queries), lse, step.data(), n);
    for (int64_t h = 0; h < 4; ++h) {
      for (int64_t i = 0; i < layer.prompt_tokens; ++i) sums[h * layer.prompt_tokens + i] += step[h * n + i];
    }
  }
  mutable std::vector<float> sums;
};

TEST(Observations, TheFutureIsWhatFullKvAttendsToLater) {
  Transformer model = tiny_model();
  const Prefill prompt = prefill(model, tiny_prompt(70), {.future = 6});
  Listener listener;
  listener.sums.assign(4 * 70, 0.0F);
  const auto session = start_session(model, prompt, listener, {.stop = {.max_new_tokens = 7}});
  Session* const one[] = {session.get()};
  run_together(model, one);  // the seventh token is not fed any more
  EXPECT_EQ(prompt.observations[1].future_attention, listener.sums);
}

TEST(Observations, ARepetitionThatOutgrowsTheWindowIsRefused) {
  Transformer model = tiny_model();  // 2048 positions
  try {
    (void)prefill(model, tiny_prompt(1500), {.reconstructions = {{.chunk = 1500}}});
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("1500 prompt tokens and 1500 more"), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW((void)prefill(model, tiny_prompt(1500), {.reconstructions = {{.chunk = 500}}}));
}

}  // namespace
}  // namespace kvarena
