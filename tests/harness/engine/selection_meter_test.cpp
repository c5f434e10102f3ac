// Measurements of selections, against exact attention computed in double.

#include "harness/engine/session/selection_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "harness/cache/indexed_segment.h"
#include "harness/engine/session/session.h"
#include "harness/method/registry.h"
#include "tests/support/random_entries.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using testing::random_floats;

constexpr LayerShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = DType::f32};
constexpr int64_t kEntryBytes = 2 * 16 * 4;  // of one kv head

/// Does to a layer what the test says before attention.
struct Scripted final : public AttentionHooks {
  std::function<void(LayerCache&)> act;
  void before_attention(int64_t /*layer*/, LayerCache& cache, const LayerQueries& /*queries*/) override { act(cache); }
  void after_attention(int64_t /*layer*/, LayerCache& cache, const LayerQueries& /*queries*/,
                       const float* /*lse*/) override {
    cache.view.reset();
  }
};

/// One layer of random entries and queries under a meter.
struct Measured {
  explicit Measured(int64_t n) : cache(1, kShape), keys(random_floats(n * 32, "keys")), n(n) {
    cache.layers[0].append(keys.data(), keys.data(), n, 32, 0);
    meter = std::make_unique<SelectionMeter>(cache);
    meter->watch(hooks);
  }
  /// A step whose hooks do `act`; returns its share of exact attention on positions[q_head].
  void step(const std::function<void(LayerCache&)>& act) {
    const auto more = random_floats(32, "more", static_cast<uint64_t>(n));
    cache.layers[0].append(more.data(), more.data(), 1, 32, n);
    keys.insert(keys.end(), more.begin(), more.end());
    ++n;
    q = random_floats(64, "q", static_cast<uint64_t>(n));
    for (float& x : q) x *= 4;
    hooks.act = act;
    const LayerQueries queries{.q = q.data(), .q_len = 1, .q_stride = 64, .position = n - 1};
    meter->before_attention(0, cache.layers[0], queries);
    meter->after_attention(0, cache.layers[0], queries, nullptr);
  }
  /// Selects the same entries for both kv heads, or for each query head.
  void step(const std::vector<std::vector<int32_t>>& lists) {
    step(
        [&](LayerCache& layer) { layer.view = std::make_unique<IndexedSegment>(layer.tail(), lists, layer.ledger()); });
  }
  [[nodiscard]] double covered(const std::vector<std::vector<int32_t>>& of_q_heads) const {
    double total = 0;
    for (int64_t head = 0; head < 4; ++head) {
      std::vector<double> p;
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        double score = 0;
        for (int64_t c = 0; c < 16; ++c) {
          score += static_cast<double>(q[head * 16 + c]) * static_cast<double>(keys[i * 32 + head / 2 * 16 + c]);
        }
        p.push_back(std::exp(score / 4));
        sum += p.back();
      }
      for (const int32_t i : of_q_heads[head]) total += p[i] / sum;
    }
    return total / 4;
  }

  KvCache cache;
  std::vector<float> keys;  // [n, 2, 16]
  int64_t n;
  std::vector<float> q;
  Scripted hooks;
  std::unique_ptr<SelectionMeter> meter;
};

TEST(SelectionMeter, CountsMassOverlapAndBytesOfAView) {
  Measured measured(20);
  const std::vector<int32_t> a = {0, 5, 9, 20};
  const std::vector<int32_t> b = {3, 20};
  measured.step({a, b});
  EXPECT_NEAR(measured.meter->steps()[0].hit_rate, measured.covered({a, a, b, b}), 1e-5);
  EXPECT_TRUE(std::isnan(measured.meter->steps()[0].overlap));
  EXPECT_EQ(measured.meter->steps()[0].loaded_bytes, (3 + 1) * kEntryBytes);  // all but the query's own entry
  EXPECT_EQ(measured.meter->steps()[0].attended, (4 + 2) / 2.0);

  // Query heads of their own: what a kv head must hold is the union of its group. Entry 20 was attended when it was
  // new.
  measured.step({{5, 21}, {7, 20, 21}, {3, 21}, {3, 21}});
  EXPECT_NEAR(measured.meter->steps()[1].hit_rate, measured.covered({{5, 21}, {7, 20, 21}, {3, 21}, {3, 21}}), 1e-5);
  EXPECT_NEAR(measured.meter->steps()[1].overlap, (2.0 / 3 + 1) / 2, 1e-9);
  EXPECT_EQ(measured.meter->steps()[1].loaded_bytes, kEntryBytes);  // entry 7
  EXPECT_EQ(measured.meter->steps()[1].attended, (4 + 2) / 2.0);

  // A step over everything after a selection loads what is missing; the one after it finds all there.
  measured.step([](LayerCache&) {});
  EXPECT_EQ(measured.meter->steps()[2].hit_rate, 1.0);
  EXPECT_EQ(measured.meter->steps()[2].attended, 23);
  EXPECT_EQ(measured.meter->steps()[2].loaded_bytes, ((22 - 4) + (22 - 2)) * kEntryBytes);
  measured.step({a, b});
  EXPECT_EQ(measured.meter->steps()[3].loaded_bytes, 0);
  EXPECT_EQ(measured.meter->steps()[3].overlap, 1.0);
  EXPECT_TRUE(measured.meter->selected());
}

TEST(SelectionMeter, WhatWasDroppedStillCountsAsMissed) {
  Measured measured(20);
  const std::vector<int32_t> kept = {0, 1, 17, 18, 19};
  measured.cache.layers[0].tail().keep(std::vector<std::vector<int32_t>>{kept, kept});
  for (int step = 0; step < 3; ++step) {
    measured.step([](LayerCache&) {});
    std::vector<int32_t> held = kept;
    for (int32_t i = 20; i < measured.n; ++i) held.push_back(i);
    EXPECT_NEAR(measured.meter->steps().back().hit_rate, measured.covered({held, held, held, held}), 1e-5);
    EXPECT_EQ(measured.meter->steps().back().loaded_bytes, 0);
    EXPECT_EQ(measured.meter->steps().back().attended, held.size());
  }
  EXPECT_FALSE(measured.meter->selected());
  EXPECT_NEAR(measured.meter->layer_hit_rates()[0],
              (measured.meter->steps()[0].hit_rate + measured.meter->steps()[1].hit_rate +
               measured.meter->steps()[2].hit_rate) /
                  3,
              1e-12);
}

TEST(SelectionMeter, SharesALongPromptAndMeasuresBehindIt) {
  KvCache prompt(1, kShape);
  const auto keys = random_floats(1100 * 32, "keys");
  prompt.layers[0].append(keys.data(), keys.data(), 1100, 32, 0);
  const int64_t before = MemoryLedger::process().current();
  const SelectionMeter unused(prompt);
  EXPECT_LT(MemoryLedger::process().current() - before, prompt.bytes() / 8);

  for (const int64_t n : {1024, 1100}) {  // whole chunks of attention, and some entries more
    Measured measured(n);
    const std::vector<std::vector<int32_t>> lists = {{0, 500, 511, 512}, {700, static_cast<int32_t>(n)}};
    measured.step(lists);
    EXPECT_NEAR(measured.meter->steps()[0].hit_rate, measured.covered({lists[0], lists[0], lists[1], lists[1]}), 1e-6)
        << n;
  }
}

TEST(SelectionMeter, ASessionUnderItEmitsTheSameBits) {
  Transformer model = testing::tiny_model();
  const Prefill prompt = prefill(model, testing::tiny_prompt(300), {.prompt_attention = true});
  std::vector<double> means;
  for (const nlohmann::json& spec : {nlohmann::json{{"name", "full"}},
                                     {{"name", "h2o"}, {"tokens", 40}},
                                     {{"name", "heavy_hitter_retr"}, {"tokens", 40}},
                                     {{"name", "ideal_topk"}, {"tokens", 40}}}) {
    const auto method = make_method(spec, "test");
    SelectionMeter meter(prompt.cache);
    std::vector<std::vector<int32_t>> tokens;
    for (SelectionMeter* const use : {static_cast<SelectionMeter*>(nullptr), &meter}) {
      const auto session =
          start_session(model, prompt, *method, {.stop = {.max_new_tokens = 20}, .on_logits = {}, .meter = use});
      Session* const one[] = {session.get()};
      run_together(model, one);
      tokens.push_back(session->tokens);
    }
    EXPECT_EQ(tokens[0], tokens[1]) << spec;
    ASSERT_EQ(meter.steps().size(), 19U) << spec;
    double total = 0;
    for (const SelectionStep& step : meter.steps()) total += step.hit_rate;
    means.push_back(total / 19);
  }
  EXPECT_EQ(means[0], 1.0);
  EXPECT_LT(means[1], means[3]);
  EXPECT_LT(means[2], means[3]);
}

struct Metered {
  std::vector<int32_t> tokens;
  std::vector<SelectionStep> steps;
  int64_t drafted = 0;

  [[nodiscard]] double hit_rate() const {
    double total = 0;
    for (const SelectionStep& step : steps) total += step.hit_rate;
    return total / static_cast<double>(steps.size());
  }
};

/// 20 tokens under a meter.
Metered run(Transformer& model, const Prefill& prompt, const nlohmann::json& spec) {
  const auto method = make_method(spec, "test");
  SelectionMeter meter(prompt.cache);
  const auto session =
      start_session(model, prompt, *method, {.stop = {.max_new_tokens = 20}, .on_logits = {}, .meter = &meter});
  Session* const one[] = {session.get()};
  run_together(model, one);
  EXPECT_EQ(session->failure, "");
  return {.tokens = session->tokens, .steps = meter.steps(), .drafted = session->activity.tokens_drafted};
}

TEST(SelectionMeter, FollowsDecodingWithAGuess) {
  Transformer model = testing::tiny_model();
  const Prefill prompt = prefill(model, testing::tiny_prompt(300), {});
  const auto specache = [](int64_t k) {
    return nlohmann::json{{"name", "specache"},
                          {"k", k},
                          {"copy", {{"name", "kivi"}, {"bits", 1}, {"group_size", 32}, {"residual_length", 32}}}};
  };
  const Metered few = run(model, prompt, specache(8));
  const Metered more = run(model, prompt, specache(64));
  const Metered all = run(model, prompt, specache(1000));
  for (const Metered* one : {&few, &more, &all}) EXPECT_EQ(one->steps.size(), 19U) << "the preparing pass is no step";
  EXPECT_LT(few.hit_rate(), more.hit_rate());
  EXPECT_LT(more.hit_rate(), 1);
  EXPECT_NEAR(all.hit_rate(), 1, 1e-6);
  EXPECT_EQ(all.tokens, run(model, prompt, {{"name", "full"}}).tokens);
}

TEST(SelectionMeter, FollowsTheDraftsOfAVerifier) {
  Transformer model = testing::tiny_model();
  const Prefill prompt = prefill(model, testing::tiny_prompt(300), {});
  const auto verified = [](const nlohmann::json& drafter) {
    return nlohmann::json{{"name", "vericache"}, {"draft_length", 4}, {"drafter", drafter}};
  };
  const Metered full = run(model, prompt, {{"name", "full"}});
  const Metered sparse = run(model, prompt, verified({{"name", "ideal_topk"}, {"tokens", 20}}));
  EXPECT_EQ(sparse.tokens, full.tokens);
  EXPECT_EQ(static_cast<int64_t>(sparse.steps.size()), sparse.drafted);
  // Selections of the queries alone agree, as long as drafts are accepted.
  EXPECT_EQ(sparse.steps[0].hit_rate, run(model, prompt, {{"name", "ideal_topk"}, {"tokens", 20}}).steps[0].hit_rate);
  EXPECT_LT(sparse.hit_rate(), 1);
  EXPECT_EQ(run(model, prompt, verified({{"name", "ideal_topk"}, {"tokens", 400}})).hit_rate(), 1);
  EXPECT_TRUE(run(model, prompt, {{"name", "ngram"}}).steps.empty());
}

}  // namespace
}  // namespace kvarena
