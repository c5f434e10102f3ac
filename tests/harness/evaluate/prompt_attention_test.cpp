// Computed and kept shares of a prompt's attention, of patterns that are counted by hand.

#include "harness/evaluate/prompt_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/engine/model_facts.h"
#include "harness/method/registry.h"
#include "tests/support/tiny_model.h"

namespace kvarena::evaluate {
namespace {

using nlohmann::json;

constexpr int64_t kTokens = 150;

class PromptAttentionOfARequest : public ::testing::Test {
 protected:
  PromptAttentionOfARequest() : model_(testing::tiny_model()) {}

  /// By name, in the order that they are added in.
  std::vector<std::pair<std::string, double>> added(const json& spec) {
    const Request request{.facts = model_facts(model_), .prompt = testing::tiny_prompt(kTokens, 5)};
    results::SampleResult result;
    add_prompt_attention(result, model_, request, *make_method(spec, "test"));
    std::vector<std::pair<std::string, double>> values;
    for (const results::MetricValue& value : result.values) values.emplace_back(value.metric, value.value);
    return values;
  }

  Transformer model_;
};

TEST_F(PromptAttentionOfARequest, IsCountedPairByPair) {
  const int64_t sinks = 8, local = 20;
  int64_t pairs = 0;
  for (int64_t query = 0; query < kTokens; ++query) {
    for (int64_t key = 0; key <= query; ++key) pairs += key < sinks || query - key < local ? 1 : 0;
  }
  const auto values = added({{"name", "a_shape"}, {"sinks", sinks}, {"local", local}});
  ASSERT_EQ(values.size(), 2U);
  EXPECT_EQ(values[0].first, "prompt_attention_kept");
  EXPECT_GT(values[0].second, 0.1);
  EXPECT_LT(values[0].second, 0.99);
  EXPECT_EQ(values[1].first, "prompt_attention_computed");
  EXPECT_NEAR(values[1].second, static_cast<double>(pairs) / (kTokens * (kTokens + 1) / 2), 1e-9);
}

TEST_F(PromptAttentionOfARequest, OfAPatternOfEverythingIsOne) {
  for (const auto& [metric, value] : added({{"name", "a_shape"}, {"sinks", 50}, {"local", kTokens}})) {
    EXPECT_NEAR(value, 1, 1e-6) << metric;
  }
}

TEST_F(PromptAttentionOfARequest, IsNoneOfMethodsThatStartFromTheFullPrefill) {
  EXPECT_TRUE(added({{"name", "snapkv"}, {"keep", 0.25}}).empty());
  EXPECT_TRUE(added({{"name", "full"}}).empty());
}

}  // namespace
}  // namespace kvarena::evaluate
