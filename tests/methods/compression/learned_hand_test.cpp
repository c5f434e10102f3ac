// Hand-computed cases of the methods with weights or observations of their own (method sheet, "Test" lines).

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/engine/fitted_file.h"
#include "harness/method/registry.h"
#include "harness/method/scorer.h"

namespace kvarena {
namespace {

using nlohmann::json;

constexpr int64_t kDim = 16;  // the smallest head; channels that a case does not name are 0

/// Rows of `width` channels, filled up to kDim.
std::vector<float> padded(const std::vector<float>& rows, int64_t width) {
  std::vector<float> wide(rows.size() / static_cast<size_t>(width) * kDim, 0.0F);
  for (size_t i = 0; i < rows.size(); ++i)
    wide[i / static_cast<size_t>(width) * kDim + i % static_cast<size_t>(width)] = rows[i];
  return wide;
}

/// A layer of `entries` keys [entries][kv_heads][2] whose values are the keys, and what surrounds it.
struct Layer {
  Layer(const std::vector<float>& keys, int64_t kv_heads, int64_t entries, std::vector<FittedTensors> weights = {})
      : cache(1, {.q_heads = kv_heads, .kv_heads = kv_heads, .head_dim = kDim, .dtype = DType::f32}) {
    const std::vector<float> rows = padded(keys, 2);
    cache.layers[0].append(rows.data(), rows.data(), entries, kDim * kv_heads, 0);
    context.prompt_tokens = entries;
    seen.entries = entries;
    facts.hidden_size = 2;
    facts.rotation.inverse.assign(kDim / 2, 0.0);  // no rotation
    if (!weights.empty()) {
      auto fitted = std::make_shared<FittedWeights>();
      fitted->tensors = weights.front();
      facts.fitted = [fitted](const FittedRequest&) { return fitted; };
    }
  }
  [[nodiscard]] std::vector<int32_t> kept(const json& spec, int64_t head = 0) {
    make_method(spec, "test")->compress_all({&context, 1}, {&seen, 1});
    return cache.layers[0].tail().positions(head);
  }
  [[nodiscard]] at::Tensor scores(const json& spec) {
    return Nested<Scorer>(spec.dump())->score(LayerView(context, &seen));
  }

  KvCache cache;
  Activity activity;
  ModelFacts facts;
  LayerObservations seen;
  LayerContext context{
      .layer = 0, .layers = 1, .cache = cache.layers[0], .activity = activity, .prompt_tokens = 0, .model = &facts};
};

TEST(ExpectedAttentionByHand, AKeyAlongTheMeanQueryIsExpectedMost) {
  Layer layer({0, 0, 2, 0, 0, 2}, 1, 3);
  // In two dimensions: mean (1, 0), covariance diag(1, 0); scaled so that 16 give the same logits.
  QueryMoments moments{
      .left_out = 0, .count = 5, .mean = std::vector<double>(kDim), .covariance = std::vector<double>(kDim * kDim)};
  moments.mean[0] = std::sqrt(kDim / 2.0);
  moments.covariance[0] = kDim / 2.0;
  layer.seen.query_moments = {moments};
  const at::Tensor scores = layer.scores({{"name", "expected_attention"}, {"sinks", 0}, {"value_norm", false}});
  EXPECT_NEAR(scores[0][0].item<double>(), 0.07587, 1e-5);  // logits 0, 2.41421, 0
  EXPECT_NEAR(scores[0][1].item<double>(), 0.84827, 1e-5);
  EXPECT_NEAR(scores[0][2].item<double>(), 0.07587, 1e-5);
}

/// KVzip on ten entries of one head, scored .9, .8, ..., .0.
std::vector<int32_t> kvzip_keeps(double keep, const std::string& rule, int64_t prefix = 0) {
  Layer layer(std::vector<float>(20, 1.0F), 1, 10);
  const Needs needs = make_method({{"name", "kvzip"}, {"keep", keep}}, "test")->needs();
  std::vector<float> scores;
  for (int i = 0; i < 10; ++i) scores.push_back(0.9F - 0.1F * static_cast<float>(i));
  layer.seen.reconstructions = {{.of = needs.reconstructions[0], .prefix = prefix, .scores = scores}};
  return layer.kept({{"name", "kvzip"}, {"keep", keep}, {"budget_rule", {{"name", rule}}}});
}

TEST(KvzipByHand, TheBudgetIsMetExactly) {
  EXPECT_EQ(kvzip_keeps(0.5, "global"), (std::vector<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(kvzip_keeps(0.5, "uniform"), (std::vector<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(kvzip_keeps(0.1, "global"), (std::vector<int32_t>{0}));
  EXPECT_EQ(kvzip_keeps(1.0, "global").size(), 10U);
}

/// f(h) = h[0] for one head: the attention input is the score.
FittedTensors identity() {
  return {{"layers.0.weight", {.shape = {1, 2}, .values = {1, 0}}}, {"layers.0.bias", {.shape = {1}, .values = {0}}}};
}

TEST(KvzapByHand, OnlyEntriesBehindTheWindowAreJudged) {
  const std::vector<float> keys(6, 1.0F);
  const auto kept = [&](double threshold, int64_t window) {
    Layer layer(keys, 1, 3, {identity()});
    layer.seen.hidden = {-5, 0, -3, 0, -7, 0};
    return layer.kept({{"name", "kvzap_threshold"}, {"threshold", threshold}, {"window", window}});
  };
  EXPECT_EQ(kept(-4, 1), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(kept(-4, 3), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(kept(-1e30, 1), (std::vector<int32_t>{0, 1, 2}));
}

TEST(KvzapByHand, ATokenOfTheAnswerIsJudgedWhenItLeavesTheWindow) {
  Layer layer(std::vector<float>(6, 1.0F), 1, 3, {identity()});
  layer.seen.hidden = {-1, 0, -2, 0, -3, 0};
  const auto method = make_method({{"name", "kvzap_threshold"}, {"threshold", -4}, {"window", 2}}, "test");
  method->compress_all({&layer.context, 1}, {&layer.seen, 1});
  const std::vector<float> row(kDim, 1.0F);
  const std::vector<float> hidden_of_step = {-9, -1, -1};
  for (int64_t step = 0; step < 3; ++step) {
    layer.cache.layers[0].append(row.data(), row.data(), 1, kDim, 3 + step);
    const std::vector<float> hidden = {hidden_of_step[step], 0};
    const LayerQueries queries{
        .q = row.data(), .q_len = 1, .q_stride = kDim, .position = 3 + step, .hidden = hidden.data()};
    const float lse = 0;
    method->observe(layer.context, queries, &lse);
    method->after_append(layer.context);
    const std::vector<int32_t> held = layer.cache.layers[0].tail().positions(0);
    EXPECT_EQ(std::ranges::count(held, 3), step < 2 ? 1 : 0) << "step " << step;
  }
  EXPECT_EQ(layer.cache.layers[0].tail().positions(0), (std::vector<int32_t>{0, 1, 2, 4, 5}));
}

TEST(FastKvzipByHand, AGateOfZerosScoresOneSeventeenth) {
  const auto zeros = [](std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return FittedTensor{.shape = std::move(shape), .values = std::vector<float>(static_cast<size_t>(count), 0.0F)};
  };
  Layer layer(std::vector<float>(100, 1.0F), 1, 50,
              {{{"layers.0.q_proj.weight", zeros({16, 2})},
                {"layers.0.q_proj.bias", zeros({16})},
                {"layers.0.k_proj.weight", zeros({16, 2})},
                {"layers.0.q_norm.weight", zeros({16})},
                {"layers.0.k_norm.weight", zeros({16})},
                {"layers.0.k_base", zeros({1, 1, 16, 16})},
                {"layers.0.b", zeros({1, 1, 1})}}});
  layer.seen.hidden.assign(100, 1.0F);
  const at::Tensor scores = layer.scores({{"name", "fast_kvzip"}});
  EXPECT_NEAR(scores[0][20].item<double>(), 1.0 / 17, 1e-6);
  EXPECT_TRUE(std::isinf(scores[0][3].item<double>()));
  EXPECT_TRUE(std::isinf(scores[0][49].item<double>()));  // 2 % of 50: one entry
  EXPECT_FALSE(std::isinf(scores[0][48].item<double>()));
}

TEST(DuoAttentionByHand, HeadsBelowTheQuantileStream) {
  const FittedTensors gates = {{"full_attention_heads", {.shape = {1, 4}, .values = {0.9F, 0.1F, 0.5F, 0.3F}}}};
  const auto sizes = [&](double sparsity) {
    Layer layer(std::vector<float>(80, 1.0F), 4, 10, {gates});
    const json spec = {{"name", "duo_attention"}, {"sparsity", sparsity}, {"sinks", 2}, {"recent", 3}};
    (void)layer.kept(spec);
    std::vector<size_t> counts;
    for (int64_t head = 0; head < 4; ++head) counts.push_back(layer.cache.layers[0].tail().positions(head).size());
    if (sparsity == 0.5) {
      EXPECT_EQ(layer.cache.layers[0].tail().positions(1), (std::vector<int32_t>{0, 1, 7, 8, 9}));
    }
    return counts;
  };
  EXPECT_EQ(sizes(0.5), (std::vector<size_t>{10, 5, 10, 5}));
  EXPECT_EQ(sizes(0), (std::vector<size_t>{10, 10, 10, 10}));
}

/// One head over ten entries with these sums of attention; tokens 1 are special, 2 punctuation.
std::vector<int32_t> fastgen_keeps(const std::vector<float>& mass, double recovery) {
  Layer layer(std::vector<float>(20, 1.0F), 1, 10);
  layer.facts.text.token_class = {TokenClass::plain, TokenClass::special, TokenClass::punctuation};
  const std::vector<int32_t> tokens = {1, 0, 0, 0, 0, 1, 2, 0, 0, 0};
  layer.context.prompt = tokens;
  for (const float share : mass) layer.seen.prompt_attention.push_back(10 * share);
  return layer.kept({{"name", "fastgen"}, {"recovery", recovery}, {"frequent", 0.2}, {"local", 0.1}});
}

TEST(FastGenByHand, AHeadTakesTheFirstSetThatHoldsEnough) {
  EXPECT_EQ(fastgen_keeps({.5F, 0, 0, 0, 0, .47F, 0, 0, .03F, 0}, 0.9), (std::vector<int32_t>{0, 1, 2, 3, 5}));
  EXPECT_EQ(fastgen_keeps({.5F, 0, 0, 0, 0, .2F, .27F, 0, .03F, 0}, 0.9), (std::vector<int32_t>{0, 1, 2, 3, 5, 6}));
  EXPECT_EQ(fastgen_keeps({.5F, 0, 0, 0, 0, .2F, .1F, .05F, .15F, 0}, 0.9),
            (std::vector<int32_t>{0, 1, 2, 3, 5, 6, 7, 8}));
  EXPECT_EQ(fastgen_keeps({.5F, 0, 0, 0, .1F, .1F, 0, .1F, .05F, .15F}, 0.9).size(), 10U);
  EXPECT_EQ(fastgen_keeps({.5F, 0, 0, 0, 0, .47F, 0, 0, .03F, 0}, 1.1).size(), 10U);
}

/// A decode step over a cache of sinks 0, 1 and recent 2, 3 whose queries see every entry alike or skip entry 2.
float cam_gain(bool skips, int64_t merge) {
  KvCache cache(1, {.q_heads = 1, .kv_heads = 1, .head_dim = kDim, .dtype = DType::f32});
  Activity activity;
  LayerContext context{.layer = 0, .layers = 1, .cache = cache.layers[0], .activity = activity, .prompt_tokens = 4};
  const std::vector<float> keys = padded({0, 0, skips ? -99.0F : 0.0F, 0, 0}, 1);
  const std::vector<float> values = padded({0, 0, 6, 1, 1}, 1);
  cache.layers[0].append(keys.data(), values.data(), 4, kDim, 0);
  const auto method = make_method({{"name", "cam"}, {"tokens", 4}, {"merge", merge}}, "test");
  method->compress_all({&context, 1}, std::vector<LayerObservations>(1));
  cache.layers[0].append(keys.data() + 4 * kDim, values.data() + 4 * kDim, 1, kDim, 4);
  const std::vector<float> q = padded({10}, 1);
  const LayerQueries queries{.q = q.data(), .q_len = 1, .q_stride = kDim, .position = 4};
  const float lse = std::log(skips ? 4.0F : 5.0F);
  method->observe(context, queries, &lse);
  method->after_append(context);
  EXPECT_EQ(cache.layers[0].tail().positions(0), (std::vector<int32_t>{0, 1, 3, 4}));
  std::vector<float> left(4 * kDim);
  cache.layers[0].tail().read(0, nullptr, left.data());
  return left[2 * kDim] - 1;  // of entry 3
}

TEST(CamByHand, AnEntryAsAttendedAsItsSuccessorsIsMergedAndAnIgnoredOneIsNot) {
  EXPECT_NEAR(cam_gain(/*skips=*/false, 2), 3, 1e-6);
  EXPECT_NEAR(cam_gain(/*skips=*/false, 3), 2, 1e-6);  // M divides also where fewer successors are left
  EXPECT_NEAR(cam_gain(/*skips=*/true, 2), 0, 1e-6);
}

/// A head of six entries, the first four of them sinks: entry 4 leaves for entry 5.
struct SixEntries {
  /// `leaving` is the cosine of the keys of entries 4 and 5; the sinks' keys are square to both.
  explicit SixEntries(float leaving)
      : cache(1, {.q_heads = 1, .kv_heads = 1, .head_dim = kDim, .dtype = DType::f32}),
        context{.layer = 0, .layers = 1, .cache = cache.layers[0], .activity = activity, .prompt_tokens = 6} {
    for (int i = 0; i < 4; ++i) append({0, 0, 0, 1}, 9);
    append(at_cosine(leaving), 2);
    append({1, 0, 0, 0}, 4);
    method->compress_all({&context, 1},
                         std::vector<LayerObservations>{{.entries = 6, .prompt_attention = {1, 1, 1, 1, 0, 1}}});
  }
  static std::vector<float> at_cosine(float cosine) { return {cosine, std::sqrt(1 - cosine * cosine), 0, 0}; }
  void append(const std::vector<float>& key, float value) {
    const std::vector<float> values(kDim, value);
    cache.layers[0].append(padded(key, 4).data(), values.data(), 1, kDim, position++);
  }
  /// First channel of each value held.
  [[nodiscard]] std::vector<float> values() const {
    std::vector<float> all(static_cast<size_t>(kDim * cache.layers[0].tail().entries(0)));
    cache.layers[0].tail().read(0, nullptr, all.data());
    std::vector<float> first;
    for (size_t i = 0; i < all.size(); i += kDim) first.push_back(all[i]);
    return first;
  }

  std::unique_ptr<Method> method = make_method({{"name", "d2o"}, {"tokens", 5}, {"recent_share", 0.2}}, "test");
  Activity activity;
  KvCache cache;
  LayerContext context;
  int64_t position = 0;
};

TEST(D2oByHand, AnEvictedEntryLikeAKeptOneIsAveragedIntoIt) {
  EXPECT_EQ(SixEntries(1).values(), (std::vector<float>{9, 9, 9, 9, 3}));
  const std::vector<float> half = SixEntries(0.5F).values();
  EXPECT_NEAR(half[4], (4 + 0.5 * 2) / 2, 1e-6);  // the cosine is the weight
}

TEST(D2oByHand, TheThresholdFollowsTheMeanSimilarity) {
  // First mean .8: tau .8. Then .6: tau .7, too unlike; or .9: tau .85, alike enough.
  for (const auto& [cosine, merged] : {std::pair{0.6F, false}, std::pair{0.9F, true}}) {
    SixEntries six(0.8F);
    // Entry 5 leaves for the newest, whose key lies at this cosine to the merged key.
    std::vector<float> keys(5 * kDim);
    six.cache.layers[0].tail().read(0, keys.data(), nullptr);
    const float length = std::hypot(keys[4 * kDim], keys[4 * kDim + 1]);
    const float x = keys[4 * kDim] / length;
    const float y = keys[4 * kDim + 1] / length;
    EXPECT_NEAR(x, (1 + 0.8 * 0.8) / std::hypot(1.64, 0.48), 1e-5);
    const float sine = std::sqrt(1 - cosine * cosine);
    six.append({x * cosine - y * sine, y * cosine + x * sine, 0, 0}, 100);
    six.method->after_append(six.context);
    EXPECT_EQ(six.cache.layers[0].tail().positions(0), (std::vector<int32_t>{0, 1, 2, 3, 6}));
    EXPECT_EQ(six.values()[4] != 100.0F, merged) << "cosine " << cosine;
  }
}

TEST(D2oByHand, LayersOfEqualAttentionShareEqually) {
  KvCache cache(8, {.q_heads = 1, .kv_heads = 1, .head_dim = kDim, .dtype = DType::f32});
  Activity activity;
  std::vector<LayerContext> layers;
  std::vector<LayerObservations> seen(8, {.entries = 20, .prompt_attention = std::vector<float>(20, 1.0F)});
  const std::vector<float> rows(20 * kDim, 1.0F);
  for (int64_t l = 0; l < 8; ++l) {
    cache.layers[l].append(rows.data(), rows.data(), 20, kDim, 0);
    layers.push_back({.layer = l, .layers = 8, .cache = cache.layers[l], .activity = activity, .prompt_tokens = 20});
  }
  make_method({{"name", "d2o"}, {"keep", 0.5}}, "test")->compress_all(layers, seen);
  std::vector<int64_t> sizes;
  for (const LayerCache& layer : cache.layers) sizes.push_back(layer.tail().entries(0));
  EXPECT_EQ(sizes, (std::vector<int64_t>{20, 20, 10, 10, 10, 10, 10, 20}));
}

}  // namespace
}  // namespace kvarena
