// Appendix B.1's model against numbers worked out beside it (GB and GB/s).

#include "harness/cost_model/staggered_decoding.h"

#include <gtest/gtest.h>

namespace kvarena::cost_model {
namespace {

const DecodingMachine machine{.memory_bytes = 96, .memory_bandwidth = 1720, .link_bandwidth = 50};
const DecodingLoad load{.weight_bytes = 50, .cache_bytes = 4};

DecodingPlan offloaded(int64_t requests) {
  return {.offloaded = requests, .draft_length = 30, .kept = 0.25, .acceptance = 0.8};
}

TEST(StaggeredDecoding, TenRequestsAsWorkedOut) {
  const DecodingEstimate ten = estimate(machine, load, offloaded(10));
  EXPECT_NEAR(ten.average_cache_bytes, 1.096774, 1e-6);
  EXPECT_NEAR(ten.used_bytes, 60.9677, 1e-4);
  EXPECT_NEAR(ten.gpu_seconds, 35.4464e-3, 1e-7);
  EXPECT_NEAR(ten.link_seconds, 19.3548e-3, 1e-7);
  EXPECT_NEAR(ten.tokens_per_second, 227.513, 1e-3);
  EXPECT_TRUE(ten.fits && ten.link_serves);
}

TEST(StaggeredDecoding, MoreRequestsUntilTheLinkBinds) {
  EXPECT_NEAR(estimate(machine, load, offloaded(20)).tokens_per_second, 385.650, 1e-3);
  for (int64_t requests = 24; requests <= 31; ++requests) {
    const DecodingEstimate found = estimate(machine, load, offloaded(requests));
    EXPECT_NEAR(found.tokens_per_second, 416.667, 1e-3) << requests;
    EXPECT_TRUE(found.link_serves);
  }
  EXPECT_FALSE(estimate(machine, load, offloaded(32)).link_serves);
}

TEST(StaggeredDecoding, FullCachesServeElevenRequests) {
  const auto full = full_cache_estimate(machine, load);
  ASSERT_TRUE(full);
  EXPECT_EQ(full->requests, 11);
  EXPECT_NEAR(full->iteration_seconds, 54.6512e-3, 1e-7);
  EXPECT_NEAR(full->tokens_per_second, 201.277, 1e-3);
  EXPECT_FALSE(full_cache_estimate({.memory_bytes = 53, .memory_bandwidth = 1720, .link_bandwidth = 50}, load));
}

TEST(StaggeredDecoding, TheShortFormChargesWholeReloads) {
  // Both sides of the maximum of Eq. 3, the link's shown by a machine of endless memory bandwidth.
  EXPECT_NEAR(short_iteration_seconds(machine, load, 10, 30, 0.25), 35.6589e-3, 1e-7);
  EXPECT_NEAR(
      short_iteration_seconds({.memory_bytes = 96, .memory_bandwidth = 1e12, .link_bandwidth = 50}, load, 10, 30, 0.25),
      26.6667e-3, 1e-7);
}

TEST(StaggeredDecoding, StrictLinksForgetTheReloadSpan) {
  DecodingPlan plan = offloaded(10);
  const double one = estimate(machine, load, plan, LinkModel::strict).link_seconds;
  EXPECT_DOUBLE_EQ(one, estimate(machine, load, plan).link_seconds);
  plan.reload_iterations = 3;
  EXPECT_DOUBLE_EQ(estimate(machine, load, plan, LinkModel::strict).link_seconds, one);
  EXPECT_NEAR(estimate(machine, load, plan).link_seconds, one / 3, 1e-12);
  plan.resident = 1;  // drafts on a compressed copy beside its full cache
  EXPECT_NEAR(estimate(machine, load, plan, LinkModel::strict).used_bytes - estimate(machine, load, plan).used_bytes, 1,
              1e-9);
}

TEST(StaggeredDecoding, TheBestPlanIsTheBestOfAllPlans) {
  const AcceptanceCurve curve = AcceptanceCurve::independent(0.98, 40);
  const auto gamma = [&](int64_t x, double) { return curve.rate(x); };
  DecodingChoices choices{.kept = {0.25, 0.5}, .max_reload_iterations = 3};
  for (int64_t x = 1; x <= 40; ++x) choices.draft_lengths.push_back(x);
  for (const LinkModel link : {LinkModel::paper, LinkModel::strict}) {
    const auto best = best_plan(machine, load, choices, gamma, link);
    ASSERT_TRUE(best);
    EXPECT_TRUE(best->estimate.fits && best->estimate.link_serves);
    double found = 0;  // every plan, residents free too
    for (const double kept : choices.kept) {
      for (int64_t x = 1; x <= 40; ++x) {
        for (int64_t l = 1; l <= 3; ++l) {
          for (int64_t off = 0; off <= 45; ++off) {
            for (int64_t resident = 0; resident <= 12; ++resident) {
              const DecodingEstimate plan = estimate(machine, load,
                                                     {.resident = resident,
                                                      .offloaded = off,
                                                      .draft_length = x,
                                                      .kept = kept,
                                                      .acceptance = curve.rate(x),
                                                      .reload_iterations = l},
                                                     link);
              if (plan.fits && plan.link_serves) found = std::max(found, plan.tokens_per_second);
            }
          }
        }
      }
    }
    EXPECT_GE(best->estimate.tokens_per_second, found * (1 - 1e-9));
    EXPECT_NEAR(best->speedup, best->estimate.tokens_per_second / 201.277, 1e-4);
  }
}

TEST(StaggeredDecoding, ResidentsDecodeWhereTheirCachesAreSmallBesideTheWeights) {
  // x = 3, c = 0.25, gamma = 2/3: (2 + 1) / 4 tokens an iteration, caches of (3 / 4 + 1) / 4 = 7/16 on average.
  DecodingPlan plan{.resident = 4, .draft_length = 3, .kept = 0.25, .acceptance = 2.0 / 3};
  // Drafting gives 3 tokens for W + 4 * 7, decoding 4 for W + 4 * 16: the same at W = 80.
  EXPECT_FALSE(residents_should_decode({.weight_bytes = 79, .cache_bytes = 16}, plan));
  EXPECT_TRUE(residents_should_decode({.weight_bytes = 81, .cache_bytes = 16}, plan));
  // Beside 4 offloaded ones 6 tokens for W + 56, or 7 for W + 28 + 64: at W = 160.
  plan.offloaded = 4;
  EXPECT_FALSE(residents_should_decode({.weight_bytes = 159, .cache_bytes = 16}, plan));
  EXPECT_TRUE(residents_should_decode({.weight_bytes = 161, .cache_bytes = 16}, plan));
  plan.acceptance = 1;
  EXPECT_FALSE(residents_should_decode({.weight_bytes = 161, .cache_bytes = 16}, plan));
}

TEST(StaggeredDecoding, NothingFitsIsNoPlan) {
  EXPECT_FALSE(best_plan({.memory_bytes = 49, .memory_bandwidth = 1720, .link_bandwidth = 50}, load,
                         {.draft_lengths = {10}, .kept = {0.25}}, [](int64_t, double) { return 0.9; }));
}

}  // namespace
}  // namespace kvarena::cost_model
