#include "harness/cost_model/acceptance.h"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/core/error.h"
#include "harness/core/random.h"

namespace kvarena::cost_model {
namespace {

TEST(Acceptance, IndependentTokensFollowTheGeometricSum) {
  // E[a] = beta (1 - beta^x) / (1 - beta): 22.27 accepted of 30 at 0.98.
  const AcceptanceCurve curve = AcceptanceCurve::independent(0.98, 40);
  EXPECT_NEAR(curve.accepted(30), 0.98 * (1 - std::pow(0.98, 30)) / 0.02, 1e-9);
  EXPECT_NEAR(curve.accepted(30), 22.27, 0.005);
  EXPECT_NEAR(curve.rate(30), 0.742, 5e-4);
  EXPECT_DOUBLE_EQ(AcceptanceCurve::independent(1, 5).rate(5), 1);
  EXPECT_DOUBLE_EQ(AcceptanceCurve::independent(0, 5).accepted(5), 0);
}

TEST(Acceptance, MeasuredPointsAreMetAndLinearBetween) {
  const AcceptanceCurve curve = AcceptanceCurve::measured({{20, 0.8}, {10, 0.9}});
  EXPECT_NEAR(curve.rate(10), 0.9, 1e-12);
  EXPECT_NEAR(curve.rate(20), 0.8, 1e-12);
  EXPECT_NEAR(curve.accepted(15), (9.0 + 16.0) / 2, 1e-12);
  EXPECT_EQ(curve.max_draft_length(), 20);
}

TEST(Acceptance, WrongPointsAreExplained) {
  EXPECT_THROW(AcceptanceCurve::measured({}), UserError);
  EXPECT_THROW(AcceptanceCurve::measured({{10, 0.9}, {10, 0.8}}), UserError);
  EXPECT_THROW(AcceptanceCurve::measured({{10, 1.1}}), UserError);
  EXPECT_THROW(AcceptanceCurve::measured({{0, 0.5}}), UserError);
  EXPECT_THROW(AcceptanceCurve::from_rounds({}), UserError);
}

TEST(Acceptance, RoundsOfMixedLengthsGiveTheCurveOfEachLength) {
  // Hazards by hand: position 1 passed 3 of 4, position 2 passed 1 of 2 (one draft ended at 1), position 3 1 of 1.
  const std::vector<SeenRound> rounds = {{3, 3}, {3, 1}, {1, 1}, {2, 0}};
  const AcceptanceCurve curve = AcceptanceCurve::from_rounds(rounds);
  EXPECT_NEAR(curve.accepted(1), 0.75, 1e-12);
  EXPECT_NEAR(curve.accepted(2), 0.75 + 0.375, 1e-12);
  EXPECT_NEAR(curve.accepted(3), 0.75 + 0.375 + 0.375, 1e-12);
  EXPECT_EQ(AcceptanceCurve::from_rounds(rounds, 2).max_draft_length(), 2);
}

TEST(Acceptance, LongRoundsForetellShorterOnes) {
  const RandomStream random(7, "rounds");
  const double beta = 0.93;
  std::vector<SeenRound> rounds;
  for (uint64_t i = 0; i < 20000; ++i) {
    SeenRound round{.drafted = 12};
    while (round.accepted < round.drafted && random.uniform(i * 16 + round.accepted) < beta) ++round.accepted;
    rounds.push_back(round);
  }
  const AcceptanceCurve seen = AcceptanceCurve::from_rounds(rounds);
  const AcceptanceCurve truth = AcceptanceCurve::independent(beta, 12);
  for (int64_t x = 1; x <= 12; ++x) EXPECT_NEAR(seen.rate(x), truth.rate(x), 0.01) << x;
}

}  // namespace
}  // namespace kvarena::cost_model
