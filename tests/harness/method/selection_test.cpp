#include "harness/method/selection.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "harness/core/random.h"

namespace kvarena {
namespace {

using List = std::vector<int32_t>;

TEST(SelectBest, KeepsTheLargestInAscendingOrder) {
  EXPECT_EQ(select_best(std::vector{0.1F, 0.9F, 0.3F, 0.8F}, 2, {}), (List{1, 3}));
}

TEST(SelectBest, TiesGoToTheLowerIndex) {
  EXPECT_EQ(select_best(std::vector{0.5F, 0.5F, 0.5F, 0.1F}, 2, {}), (List{0, 1}));
}

TEST(SelectBest, ProtectedEntriesAreNoCandidates) {
  // The best score cannot push out a sink or the newest entry.
  EXPECT_EQ(select_best(std::vector{0.0F, 9.0F, 8.0F, 7.0F, 0.0F}, 3, {.sinks = 1, .recent = 1}), (List{0, 1, 4}));
}

TEST(SelectBest, ProtectionGivesWayRecentFirst) {
  const std::vector<float> scores(10, 1.0F);
  EXPECT_EQ(select_best(scores, 3, {.sinks = 2, .recent = 4}), (List{0, 1, 9}));
  EXPECT_EQ(select_best(scores, 1, {.sinks = 2, .recent = 4}), (List{0}));
}

TEST(SelectBest, ABudgetAtOrAboveTheCountKeepsEverything) {
  EXPECT_EQ(select_best(std::vector{3.0F, 1.0F}, 2, {}), (List{0, 1}));
  EXPECT_EQ(select_best(std::vector{3.0F, 1.0F}, 99, {.sinks = 5}), (List{0, 1}));
  EXPECT_TRUE(select_best({}, 4, {}).empty());
}

TEST(SelectBest, HoldsOnRandomCases) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const RandomStream draw(seed, "select");
    const auto n = static_cast<int64_t>(draw.below(60, 0) + 1);
    const auto budget = static_cast<int64_t>(draw.below(static_cast<uint64_t>(n), 1) + 1);
    const Protection protection{.sinks = static_cast<int64_t>(draw.below(5, 2)),
                                .recent = static_cast<int64_t>(draw.below(9, 3))};
    std::vector<float> scores;
    for (int64_t i = 0; i < n; ++i) scores.push_back(static_cast<float>(draw.below(6, static_cast<uint64_t>(10 + i))));
    const List kept = select_best(scores, budget, protection);
    SCOPED_TRACE("seed " + std::to_string(seed));
    ASSERT_EQ(static_cast<int64_t>(kept.size()), budget);
    ASSERT_TRUE(std::ranges::is_sorted(kept));
    const auto in = [&](int64_t i) { return std::ranges::binary_search(kept, static_cast<int32_t>(i)); };
    const int64_t sinks = std::min(protection.sinks, budget);
    const int64_t recent = std::min(protection.recent, budget - sinks);
    for (int64_t i = 0; i < sinks; ++i) EXPECT_TRUE(in(i));
    for (int64_t i = n - recent; i < n; ++i) EXPECT_TRUE(in(i));
    // No candidate left out beats one that was kept.
    for (int64_t out = sinks; out < n - recent; ++out) {
      if (in(out)) continue;
      for (int64_t kept_one = sinks; kept_one < n - recent; ++kept_one) {
        if (!in(kept_one)) continue;
        EXPECT_TRUE(scores[out] < scores[kept_one] || (scores[out] == scores[kept_one] && out > kept_one));
      }
    }
  }
}

}  // namespace
}  // namespace kvarena
