// Important tokens by two readings of a prompt, against lists made by sorting.

#include "harness/evaluate/token_overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "harness/engine/model_facts.h"
#include "harness/engine/reuse/speculation.h"
#include "harness/method/registry.h"
#include "tests/support/tiny_model.h"

namespace kvarena::evaluate {
namespace {

using nlohmann::json;
using testing::tiny_model;
using testing::tiny_prompt;

constexpr int64_t kTokens = 210;

/// A fifth of the tokens: those of the largest scores.
std::set<size_t> largest(const std::vector<double>& scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  return {order.begin(), order.begin() + static_cast<std::ptrdiff_t>((scores.size() + 4) / 5)};
}

/// Mean norms over layers `from` .. `to` - 1.
std::vector<double> scores_of(const Speculation& read, int64_t from, int64_t to) {
  std::vector<double> scores(static_cast<size_t>(read.tokens), 0);
  for (int64_t layer = from; layer < to; ++layer) {
    for (int64_t t = 0; t < read.tokens; ++t) scores[t] += read.norms[layer * read.tokens + t];
  }
  return scores;
}

double jaccard_of(const std::set<size_t>& a, const std::set<size_t>& b) {
  const auto common = static_cast<double>(std::ranges::count_if(a, [&](size_t i) { return b.contains(i); }));
  return common / (static_cast<double>(a.size() + b.size()) - common);
}

class TokenOverlap : public ::testing::Test {
 protected:
  TokenOverlap() : model_(tiny_model()), facts_(model_facts(model_)) {}

  std::vector<results::SampleResult> overlaps(const std::vector<json>& specs) {
    const Request request{.facts = facts_, .prompt = tiny_prompt(kTokens, 5)};
    TokenOverlaps measure(model_, request);
    std::vector<results::SampleResult> results;
    for (const json& spec : specs) {
      measure.add_to(results.emplace_back(),
                     {.method = make_method(spec, "test"), .reference = spec["name"] == "full"});
    }
    return results;
  }

  static double value(const results::SampleResult& result, const std::string& metric) {
    for (const results::MetricValue& value : result.values) {
      if (value.metric == metric) return value.value;
    }
    return NAN;
  }

  Speculation read(double layers) {
    return speculate(model_, tiny_prompt(kTokens, 5), {}, {.path = "", .layers = layers});
  }

  Transformer model_;
  std::shared_ptr<const ModelFacts> facts_;
};

TEST_F(TokenOverlap, IsTheSharedPartOfTwoFifthsOfThePrompt) {
  const auto results = overlaps({{{"name", "full"}},
                                 {{"name", "speccache"}},
                                 {{"name", "speccache"}, {"model_layers", 0.3}},
                                 {{"name", "epic"}}});
  EXPECT_EQ(value(results[1], "token_overlap"), 1) << "read by the target itself";

  const Speculation own = read(1), early = read(0.3);
  ASSERT_EQ(early.layers, (own.layers * 3 + 9) / 10);
  const int64_t deep = (own.layers + 2) / 3;
  const std::set<size_t> target = largest(scores_of(own, own.layers - deep, own.layers));
  const std::set<size_t> first = largest(scores_of(early, early.layers - (early.layers + 2) / 3, early.layers));
  EXPECT_DOUBLE_EQ(value(results[2], "token_overlap"), jaccard_of(first, target));
  EXPECT_LT(value(results[2], "token_overlap"), 1);

  EXPECT_TRUE(std::isnan(value(results[0], "token_overlap"))) << "full KV is read by nobody else";
  EXPECT_TRUE(std::isnan(value(results[3], "token_overlap"))) << "nor is a prompt under EPIC";
}

TEST_F(TokenOverlap, OfTheFirstLayerWithEach) {
  const results::SampleResult result = overlaps({{{"name", "full"}}}).front();
  const auto series = std::ranges::find(result.series, "first_layer_overlap", &results::Series::name);
  ASSERT_NE(series, result.series.end());
  const Speculation own = read(1);
  ASSERT_EQ(static_cast<int64_t>(series->values.size()), own.layers);
  EXPECT_EQ(series->values[0], 1);
  const std::set<size_t> first = largest(scores_of(own, 0, 1));
  double deep = 0;
  for (int64_t layer = 0; layer < own.layers; ++layer) {
    const double expected = jaccard_of(first, largest(scores_of(own, layer, layer + 1)));
    EXPECT_FLOAT_EQ(series->values[layer], static_cast<float>(expected)) << layer;
    if (layer >= own.layers - (own.layers + 2) / 3) deep += expected;
  }
  EXPECT_NEAR(value(result, "shallow_deep_overlap"), deep / static_cast<double>((own.layers + 2) / 3), 1e-12);
}

}  // namespace
}  // namespace kvarena::evaluate
