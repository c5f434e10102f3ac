// KVzap: by hand, and what kvpress keeps (tests/golden/learned_kvpress.py).

#include "tests/methods/compression/learned_golden.h"
#include "tests/methods/compression/observed_layer.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::draw;
using testing::kObservedDim;
using testing::ObservedLayer;

/// f(h) = h[0] for one head: the attention input is the score.
FittedTensors identity() {
  return {{"layers.0.weight", {.shape = {1, 2}, .values = {1, 0}}}, {"layers.0.bias", {.shape = {1}, .values = {0}}}};
}

TEST(Kvzap, OnlyEntriesBehindTheWindowAreJudged) {
  const std::vector<float> keys(6, 1.0F);
  const auto kept = [&](double threshold, int64_t window) {
    ObservedLayer layer(keys, 1, 3, {identity()});
    layer.seen.hidden = {-5, 0, -3, 0, -7, 0};
    return layer.kept({{"name", "kvzap"}, {"threshold", threshold}, {"window", window}});
  };
  EXPECT_EQ(kept(-4, 1), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(kept(-4, 3), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(kept(-1e30, 1), (std::vector<int32_t>{0, 1, 2}));
}

TEST(Kvzap, ATokenOfTheAnswerIsJudgedWhenItLeavesTheWindow) {
  ObservedLayer layer(std::vector<float>(6, 1.0F), 1, 3, {identity()});
  layer.seen.hidden = {-1, 0, -2, 0, -3, 0};
  const auto method = make_method({{"name", "kvzap"}, {"threshold", -4}, {"window", 2}}, "test");
  method->compress_all({&layer.context, 1}, {&layer.seen, 1});
  const std::vector<float> row(kObservedDim, 1.0F);
  const std::vector<float> hidden_of_step = {-9, -1, -1};
  for (int64_t step = 0; step < 3; ++step) {
    layer.cache.layers[0].append(row.data(), row.data(), 1, kObservedDim, 3 + step);
    const std::vector<float> hidden = {hidden_of_step[step], 0};
    const LayerQueries queries{
        .q = row.data(), .q_len = 1, .q_stride = kObservedDim, .position = 3 + step, .hidden = hidden.data()};
    const float lse = 0;
    method->observe(layer.context, queries, &lse);
    method->after_append(layer.context);
    const std::vector<int32_t> held = layer.cache.layers[0].tail().positions(0);
    EXPECT_EQ(std::ranges::count(held, 3), step < 2 ? 1 : 0) << "step " << step;
  }
  EXPECT_EQ(layer.cache.layers[0].tail().positions(0), (std::vector<int32_t>{0, 1, 2, 4, 5}));
}

TEST(Kvzap, TheNewestHaveHalfTheBudgetAtMost) {
  const std::vector<float> keys(20, 1.0F);
  const auto kept = [&](int64_t tokens) {
    ObservedLayer layer(keys, 1, 10, {identity()});
    layer.seen.hidden = {9, 0, 8, 0, 7, 0, 6, 0, 5, 0, 4, 0, 3, 0, 2, 0, 1, 0, 0, 0};
    return layer.kept({{"name", "kvzap"}, {"tokens", tokens}});
  };
  EXPECT_EQ(kept(5), (std::vector<int32_t>{0, 1, 2, 8, 9}));
  EXPECT_EQ(kept(1), (std::vector<int32_t>{0}));
}

class KvzapGolden : public testing::LearnedGolden {
 protected:
  KvzapGolden() : LearnedGolden("kvzap") {}
};

FittedTensors surrogates(const std::string& kind) {
  FittedTensors weights;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    weights[name] = draw(kind + " " + name, std::move(shape), 0.2);
  };
  for (const std::string base : {"layers.0.", "layers.1.", "layers.2."}) {
    if (kind == "linear") {
      add(base + "weight", {2, 64});
      add(base + "bias", {2});
    } else {
      add(base + "0.weight", {16, 64});
      add(base + "0.bias", {16});
      add(base + "2.weight", {2, 16});
      add(base + "2.bias", {2});
    }
  }
  return weights;
}

TEST_F(KvzapGolden, WithPublishedWeightsOfBothForms) {
  for (const std::string kind : {"linear", "mlp"}) {
    expect_equal("kvzap " + kind, {{"name", "kvzap"}, {"window", 0}, {"weights", drawn(kind, surrogates(kind))}});
  }
}

TEST_F(KvzapGolden, DropsBelowAThreshold) {
  json spec = {{"name", "kvzap"}, {"window", golden_["window"]}, {"weights", drawn("linear", surrogates("linear"))}};
  int64_t compared = 0;
  for (const json& one : golden_["cases"]) {
    for (const auto& [threshold, selection] : one["thresholds"].items()) {
      spec["threshold"] = std::stod(threshold);
      EXPECT_EQ(kept(one["tokens"].get<std::vector<int32_t>>(), spec, 0), selection) << "threshold " << threshold;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 15);
}

}  // namespace
}  // namespace kvarena
