// The next token's distribution and its draws.

#include "harness/model/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "harness/core/error.h"

namespace kvarena {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

TEST(Sampling, GreedyTakesTheLargestAndOfEqualOnesTheLowestId) {
  EXPECT_EQ(sample(std::vector<float>{1, 5, 5, 2}, {}, 0), 1);
  EXPECT_EQ(sample(std::vector<float>{kMinusInfinity, -3}, {}, 7), 1);
  EXPECT_EQ(sampling_distribution(std::vector<float>{1, 5, 5, 2}, {}), (std::vector<double>{0, 1, 0, 0}));
}

TEST(Sampling, TopKAndTopPKeepWhatTheDefinitionsKeep) {
  // Probabilities 0.4, 0.3, 0.2, 0.1.
  const std::vector<float> logits = {std::log(0.2F), std::log(0.4F), std::log(0.1F), std::log(0.3F)};
  const auto near = [&](const SamplingSettings& settings, const std::vector<double>& expected) {
    const std::vector<double> p = sampling_distribution(logits, settings);
    for (size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(p[i], expected[i], 1e-6) << i;
  };
  near({.temperature = 1}, {0.2, 0.4, 0.1, 0.3});
  near({.temperature = 1, .top_k = 2}, {0, 4 / 7.0, 0, 3 / 7.0});
  near({.temperature = 1, .top_p = 0.5}, {0, 4 / 7.0, 0, 3 / 7.0});
  near({.temperature = 1, .top_p = 0.01}, {0, 1, 0, 0});
  near({.temperature = 1, .top_k = 3, .top_p = 0.75}, {0, 4 / 7.0, 0, 3 / 7.0});
  near({.temperature = 0.5}, {4 / 30.0, 16 / 30.0, 1 / 30.0, 9 / 30.0});
}

TEST(Sampling, DrawsFollowTheDistributionAndDependOnSeedAndPositionAlone) {
  const std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.2F), kMinusInfinity};
  const SamplingSettings settings{.temperature = 1, .seed = 5};
  std::vector<int> counts(4);
  constexpr int kDraws = 20000;
  for (uint64_t position = 0; position < kDraws; ++position) {
    const int32_t id = sample(logits, settings, position);
    ++counts[static_cast<size_t>(id)];
    ASSERT_EQ(id, sample(logits, settings, position));
  }
  // Five standard deviations of a binomial count, at most 0.5 sqrt(draws).
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(counts[i], kDraws * std::exp(logits[i]), 2.5 * std::sqrt(kDraws)) << i;
  EXPECT_EQ(counts[3], 0);
  int same = 0;
  for (uint64_t position = 0; position < 100; ++position) {
    if (sample(logits, {.temperature = 1, .seed = 6}, position) == sample(logits, settings, position)) ++same;
  }
  EXPECT_LT(same, 70) << "another seed draws the same tokens";
}

TEST(Sampling, RandomDistributionsSumToOneAndKeepTheOrderOfTheLogits) {
  std::mt19937_64 draw(41);
  std::normal_distribution<float> normal(0, 4);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> logits(1 + draw() % 300);
    for (float& logit : logits) logit = normal(draw);
    const SamplingSettings settings{.temperature = 0.1 + 0.01 * static_cast<double>(draw() % 200),
                                    .top_k = static_cast<int64_t>(draw() % 50),
                                    .top_p = 0.05 * static_cast<double>(1 + draw() % 20)};
    const std::vector<double> p = sampling_distribution(logits, settings);
    ASSERT_NEAR(std::accumulate(p.begin(), p.end(), 0.0), 1.0, 1e-9) << "round " << round;
    for (size_t i = 0; i < p.size(); ++i) {
      for (size_t j = 0; j < p.size(); j += 7) {
        if (logits[i] > logits[j]) {
          ASSERT_GE(p[i], p[j]) << "round " << round;
        }
      }
    }
    const auto kept = std::count_if(p.begin(), p.end(), [](double x) { return x > 0; });
    ASSERT_LE(kept, settings.top_k > 0 ? settings.top_k : static_cast<int64_t>(p.size()));
  }
}

TEST(Sampling, LogitsWithoutAChoiceAreRefused) {
  for (const double temperature : {0.0, 1.0}) {
    const SamplingSettings settings{.temperature = temperature};
    EXPECT_THROW((void)sample(std::vector<float>{1, std::nanf("")}, settings, 0), UserError);
    EXPECT_THROW((void)sample(std::vector<float>{kMinusInfinity, kMinusInfinity}, settings, 0), UserError);
  }
}

TEST(Sampling, RejectionGivesTheTargetsDistributionWhateverTheDraft) {
  // p = (.5, .5), q = (.8, .2): the draft is accepted with sum min(p, q) = .7, and what comes out is p.
  const std::vector<float> even = {0, 0};
  const std::vector<float> skewed = {std::log(0.8F), std::log(0.2F)};
  constexpr int draws = 40000;
  int accepted = 0, first = 0, point_first = 0;
  for (uint64_t index = 0; index < draws; ++index) {
    const SamplingSettings settings{.temperature = 1, .seed = 3};
    const Draft draft = sample_draft(skewed, settings, index);
    EXPECT_NEAR(draft.distribution[0], 0.8, 1e-6);
    const int32_t token = sample_verified(even, settings, index, draft);
    accepted += token == draft.token ? 1 : 0;
    first += token == 0 ? 1 : 0;
    point_first += sample_verified(even, settings, index, {.token = 0}) == 0 ? 1 : 0;
  }
  // Five standard deviations of a binomial with 40,000 draws are at most 0.0125.
  EXPECT_NEAR(static_cast<double>(accepted) / draws, 0.7, 0.0125);
  EXPECT_NEAR(static_cast<double>(first) / draws, 0.5, 0.0125);
  EXPECT_NEAR(static_cast<double>(point_first) / draws, 0.5, 0.0125);
}

TEST(Sampling, ADraftThatIsCertainIsAlwaysAcceptedAndAnImpossibleOneNever) {
  const std::vector<float> logits = {5, kMinusInfinity, 4};
  const SamplingSettings greedy{}, warm{.temperature = 1, .seed = 9};
  for (uint64_t index = 0; index < 200; ++index) {
    EXPECT_EQ(sample_verified(logits, greedy, index, {.token = 0}), 0);
    EXPECT_EQ(sample_verified(logits, greedy, index, {.token = 2}), 0);
    EXPECT_NE(sample_verified(logits, warm, index, {.token = 1}), 1);
    const Draft twin = sample_draft(logits, warm, index);
    EXPECT_EQ(sample_verified(logits, warm, index, twin), twin.token);
  }
}

}  // namespace
}  // namespace kvarena
