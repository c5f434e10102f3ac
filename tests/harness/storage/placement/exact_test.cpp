// The integer programme against trying everything.

#include "harness/storage/placement/exact.h"

#include <gtest/gtest.h>

#include "harness/core/error.h"
#include "tests/harness/storage/placement/random_contexts.h"

namespace kvarena::storage {
namespace {

double best_by_trying(std::vector<Context>& contexts, const std::vector<StorageTier>& tiers, double alpha,
                      size_t from) {
  if (from == contexts.size()) {
    const auto used = bytes_per_tier(contexts, tiers);
    for (size_t t = 0; t < tiers.size(); ++t) {
      if (used[t] > tiers[t].capacity) return -1e300;
    }
    return total_utility(contexts, tiers, alpha);
  }
  double best = -1e300;
  Choice& at = contexts[from].at;
  for (at.tier = 0; at.tier < static_cast<int64_t>(tiers.size()); ++at.tier) {
    for (at.form = 0; at.form < static_cast<int64_t>(contexts[from].forms.size()); ++at.form) {
      best = std::max(best, best_by_trying(contexts, tiers, alpha, from + 1));
    }
  }
  return best;
}

TEST(ExactPlacement, EqualsTryingEverythingOnSmallProblems) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const RandomStream random(seed, "exact placement");
    std::vector<Context> contexts;
    for (int64_t id = 0; id < 4; ++id) contexts.push_back(testing::random_context(id, random, 1, {0.6, 0.3}));
    auto tiers = testing::three_tiers(testing::total_bytes(contexts), 0.1 + 0.5 * random.uniform(99'000),
                                      0.4 * random.uniform(99'001));
    if (seed % 2 == 1) {
      const double room = testing::total_bytes(contexts) * random.uniform(99'003);
      testing::add_ready_tier(tiers, room, contexts, random);
    }
    const double alpha = 4 * random.uniform(99'002);
    const double wanted = best_by_trying(contexts, tiers, alpha, 0);

    const std::vector<Choice> choices = best_placement(contexts, tiers, alpha);
    for (size_t i = 0; i < contexts.size(); ++i) contexts[i].at = choices[i];
    const auto used = bytes_per_tier(contexts, tiers);
    for (size_t t = 0; t < tiers.size(); ++t) EXPECT_LE(used[t], tiers[t].capacity);
    EXPECT_NEAR(total_utility(contexts, tiers, alpha), wanted, 1e-6 * std::abs(wanted));
  }
}

TEST(ExactPlacement, AReadyTierTakesWhatRestoringCostsMost) {
  // As many bytes and uses; the second takes ten times as long to restore, and room there is for one.
  std::vector<Context> contexts{
      {.id = 0, .forms = {{.bytes = 10, .ready_s = 1.1, .restore_s = 1, .ready_bytes = 30}}},
      {.id = 1, .forms = {{.bytes = 10, .ready_s = 10.1, .restore_s = 10, .ready_bytes = 30}}}};
  const std::vector<StorageTier> tiers{{.name = "device", .capacity = 59, .bandwidth = 1e300, .ready = true},
                                       {.name = "memory", .capacity = 100, .bandwidth = 100},
                                       {.name = "remote", .bandwidth = 1}};
  EXPECT_NEAR(first_token_seconds(contexts[1].forms[0], tiers[0]), 0.1, 1e-12);
  EXPECT_NEAR(first_token_seconds(contexts[1].forms[0], tiers[1]), 10.2, 1e-12);
  EXPECT_EQ(bytes_of(contexts[1], {.form = 0, .tier = 0}, tiers), 30);
  EXPECT_EQ(bytes_of(contexts[1], {.form = 0, .tier = 1}, tiers), 10);
  const std::vector<Choice> best = best_placement(contexts, tiers, 1);
  EXPECT_EQ(best[0].tier, 1);
  EXPECT_EQ(best[1].tier, 0);
}

TEST(ExactPlacement, ATierWithoutRoomStaysEmpty) {
  std::vector<Context> contexts{{.forms = {{.bytes = 100}}}};
  const std::vector<StorageTier> tiers{{.name = "host", .capacity = 0, .bandwidth = 1},
                                       {.name = "remote", .bandwidth = 1}};
  EXPECT_EQ(best_placement(contexts, tiers, 1)[0].tier, 1);
}

TEST(ExactPlacement, TheLastTierMustBeUnlimited) {
  const std::vector<StorageTier> tiers{{.name = "host", .capacity = 10, .bandwidth = 1}};
  try {
    (void)best_placement({}, tiers, 1);
    FAIL() << "expected a UserError";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "tier \"host\": found a capacity of 10 bytes, expected no limit: what leaves the other tiers must lie "
                 "somewhere");
  }
}

}  // namespace
}  // namespace kvarena::storage
