// Division of a budget by each rule, on the method sheet's own figures and on random scores.

#include "harness/method/budget_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "harness/core/error.h"
#include "harness/core/nested.h"
#include "harness/core/random.h"
#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

std::vector<LayerScores> random_layers(int64_t layers, int64_t heads, int64_t n, uint64_t seed = 1,
                                       Protection protection = {}) {
  std::vector<LayerScores> result;
  for (int64_t layer = 0; layer < layers; ++layer) {
    LayerScores scores{.heads = {}, .protection = protection};
    for (int64_t head = 0; head < heads; ++head) {
      scores.heads.push_back(testing::random_floats(n, "scores", seed + static_cast<uint64_t>(layer * heads + head)));
    }
    result.push_back(std::move(scores));
  }
  return result;
}

std::vector<int64_t> first_heads(const std::vector<HeadBudgets>& budgets) {
  std::vector<int64_t> list;
  for (const HeadBudgets& layer : budgets) {
    EXPECT_TRUE(std::ranges::all_of(layer, [&](int64_t budget) { return budget == layer.front(); }));
    list.push_back(layer.front());
  }
  return list;
}

int64_t total(const std::vector<HeadBudgets>& budgets) {
  int64_t sum = 0;
  for (const HeadBudgets& layer : budgets) sum = std::accumulate(layer.begin(), layer.end(), sum);
  return sum;
}

std::vector<int64_t> pyramid(int64_t n, double share, int64_t window, const char* form) {
  const auto layers = random_layers(4, 2, n, 1, {.recent = window});
  const Nested<BudgetRule> rule(std::string(R"({"name":"pyramid","form":")") + form + "\"}");
  return first_heads(rule->divide({.share = share, .layers = layers}));
}

using List = std::vector<int64_t>;

TEST(BudgetRule, CompositesOfLayersCompete) {
  const std::vector<LayerScores> layers = {{.heads = {{4, 1, 2, 3}, {1, 2, 3, 4}}},   // composites 4, 3, 2, 1
                                           {.heads = {{9, 0, 8, 0}, {7, 0, 0, 6}}},   // 8, 7, 0, 0
                                           {.heads = {{5, 0, 0, 0}, {5, 5, 0, 0}}}};  // 5, 2.5, 0, 0
  const Nested<BudgetRule> rule(R"({"name":"composite"})");
  EXPECT_FALSE(rule->by_layer());
  // The first layer's are worth 8, 7, 2, 1: as much as the best layer's at each place.
  EXPECT_EQ(first_heads(rule->divide({.share = 5.0 / 3, .layers = layers})), (List{2, 2, 1}));
  EXPECT_EQ(first_heads(rule->divide({.share = 2, .layers = layers})), (List{2, 2, 2}));
  EXPECT_EQ(first_heads(rule->divide({.share = 7.0 / 3, .layers = layers})), (List{3, 2, 2}));
  EXPECT_EQ(first_heads(rule->divide({.share = 1, .layers = layers})), (List{2, 1, 1})) << "no layer is left empty";
  EXPECT_EQ(first_heads(rule->divide({.share = 4, .layers = layers})), (List{4, 4, 4}));
}

TEST(BudgetRule, PyramidGivesTheFiguresOfTheTwoImplementations) {
  EXPECT_EQ(pyramid(4096, 1024, 8, "authors"), (List{1990, 1346, 702, 58}));
  EXPECT_EQ(pyramid(1000, 500, 64, "kvpress"), (List{936, 645, 355, 64}));
  EXPECT_EQ(pyramid(4096, 409.6, 64, "kvpress"), (List{410, 410, 410, 410}));  // the lowest would be under the window
  EXPECT_EQ(pyramid(1500, 1024, 8, "authors"), (List{1024, 1024, 1024, 1024}));
  EXPECT_EQ(pyramid(500, 1024, 8, "authors"), (List{1024, 1024, 1024, 1024}));
}

TEST(BudgetRule, SharesOfLayersAreRelativeToTheirMean) {
  const auto layers = random_layers(2, 2, 100);
  const Nested<BudgetRule> rule(R"({"name":"layers","shares":[0.4,0.2]})");
  EXPECT_EQ(first_heads(rule->divide({.share = 30, .layers = layers})), (List{40, 20}));
  EXPECT_THROW((void)rule->divide({.share = 30, .layers = std::span(layers).first(1)}), UserError);
}

// Method sheet, adakv: ten entries a head, the first wins 15 of the best 20, or all.
std::vector<LayerScores> unequal_heads(int64_t won) {
  LayerScores layer;
  for (int head = 0; head < 2; ++head) {
    std::vector<float> row;
    for (int64_t i = 0; i < 40; ++i) row.push_back(static_cast<float>(-i) - (head == 0 ? 0.0F : 0.5F));
    layer.heads.push_back(row);
  }
  for (int64_t i = 0; i < 40; ++i) layer.heads[1][i] -= static_cast<float>(won == 20 ? 100 : 10);
  return {layer};
}

TEST(BudgetRule, TheFloorEntersAsInEachImplementation) {
  const auto divide = [](int64_t won, const char* form) {
    const auto layers = unequal_heads(won);
    const Nested<BudgetRule> rule(std::string(R"({"name":"heads","form":")") + form + "\"}");
    return rule->divide({.share = 10, .layers = layers}).front();
  };
  EXPECT_EQ(divide(15, "kvpress"), (HeadBudgets{15, 5}));
  EXPECT_EQ(divide(15, "authors"), (HeadBudgets{14, 6}));
  EXPECT_EQ(divide(20, "kvpress"), (HeadBudgets{18, 2}));
  EXPECT_EQ(divide(20, "authors"), (HeadBudgets{18, 2}));
}

TEST(BudgetRule, AFullFloorIsAnEqualDivision) {
  const auto layers = random_layers(3, 4, 50);
  const Nested<BudgetRule> rule(R"({"name":"heads","floor":1.0})");
  EXPECT_EQ(first_heads(rule->divide({.share = 20, .layers = layers})), (List{20, 20, 20}));
}

TEST(BudgetRule, CompetitionMeetsTheTotalAndKeepsWhatIsProtected) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const RandomStream draw(seed, "rule");
    const auto heads = static_cast<int64_t>(draw.below(4, 0) + 1);
    const auto depth = static_cast<int64_t>(draw.below(4, 1) + 1);
    const auto n = static_cast<int64_t>(draw.below(80, 2) + 1);
    const double share = draw.uniform(3) * static_cast<double>(n) + 0.5;
    const Protection protection{.sinks = static_cast<int64_t>(draw.below(4, 4)),
                                .recent = static_cast<int64_t>(draw.below(9, 5))};
    const auto layers = random_layers(depth, heads, n, seed, protection);
    SCOPED_TRACE("seed " + std::to_string(seed));
    for (const char* name : {"heads", "global"}) {
      const Nested<BudgetRule> rule(std::string(R"({"name":")") + name + R"(","floor":0.3})");
      const Division division{.share = share, .layers = layers};
      const auto budgets = rule->divide(division);
      const int64_t equal = division.capacity() * heads * depth;
      const auto all = static_cast<int64_t>(std::ceil(share * static_cast<double>(heads * depth) - 1e-9));
      const bool whole = std::string(name) == "global" && n > division.capacity();
      EXPECT_EQ(total(budgets), whole ? std::max(equal, all) : equal) << name;
      const int64_t guarded = std::min(division.capacity(), protection.sinks + protection.recent);
      for (const HeadBudgets& layer : budgets) {
        for (const int64_t budget : layer) {
          EXPECT_GE(budget, guarded);
          EXPECT_LE(budget, std::max(n, division.capacity()));
        }
      }
    }
  }
}

TEST(BudgetRule, GlobalGivesEveryEntryItsPlaceInOneOrder) {
  const auto layers = random_layers(2, 2, 30, 9);
  const auto budgets = Nested<BudgetRule>(R"({"name":"global"})")->divide({.share = 7, .layers = layers});
  std::vector<float> all;
  for (const LayerScores& layer : layers) {
    for (const auto& row : layer.heads) all.insert(all.end(), row.begin(), row.end());
  }
  std::ranges::sort(all, std::greater<>());
  for (size_t layer = 0; layer < 2; ++layer) {
    for (size_t head = 0; head < 2; ++head) {
      const auto above = std::ranges::count_if(layers[layer].heads[head], [&](float s) { return s > all[28]; });
      EXPECT_EQ(budgets[layer][head], above);
    }
  }
}

TEST(BudgetRule, SaysWhatIsWrong) {
  const auto problems_of = [](const char* settings) {
    std::vector<std::string> problems;
    (void)BudgetRule::build(nlohmann::json::parse(settings), "m.budget_rule", problems);
    return problems;
  };
  EXPECT_NE(problems_of(R"({"name":"piramid"})").front().find("pyramid"), std::string::npos);
  EXPECT_FALSE(problems_of(R"({"name":"heads","floor":2})").empty());
  EXPECT_TRUE(problems_of(R"({"name":"global","floor":0.1})").empty());
}

}  // namespace
}  // namespace kvarena
