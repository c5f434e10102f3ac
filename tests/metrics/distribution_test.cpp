#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/core/error.h"
#include "harness/core/random.h"
#include "metrics/distribution/acceptance.h"
#include "metrics/distribution/divergence.h"
#include "metrics/distribution/embedding.h"
#include "metrics/distribution/selection.h"
#include "metrics/distribution/topk_divergence.h"
#include "metrics/registry.h"

namespace kvarena::metrics {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> random_logits(size_t n, const char* name, float spread) {
  const RandomStream stream(11, name);
  std::vector<float> row(n);
  for (size_t i = 0; i < n; ++i) row[i] = spread * static_cast<float>(stream.uniform(i) - 0.5);
  return row;
}

// Plain loops in long double: the definition.
long double kl_by_definition(const std::vector<float>& full, const std::vector<float>& lossy, double temperature) {
  const auto log_sum = [&](const std::vector<float>& row) {
    long double sum = 0;
    for (const float x : row) sum += std::exp(static_cast<long double>(x) / temperature);
    return std::log(sum);
  };
  const long double a = log_sum(full);
  const long double b = log_sum(lossy);
  long double kl = 0;
  for (size_t i = 0; i < full.size(); ++i) {
    const long double log_p = full[i] / temperature - a;
    kl += std::exp(log_p) * (log_p - (lossy[i] / temperature - b));
  }
  return kl;
}

TEST(Kl, EqualsTheDefinitionAtEveryLengthAroundTheLanes) {
  for (const size_t n : {1u, 2u, 7u, 8u, 9u, 15u, 16u, 17u, 1000u, 49152u}) {
    for (const double temperature : {0.5, 1.0, 2.0}) {
      const auto full = random_logits(n, "full", 30);
      const auto lossy = random_logits(n, "lossy", 30);
      const auto expected = static_cast<double>(kl_by_definition(full, lossy, temperature));
      EXPECT_NEAR(kl_nats(full, lossy, temperature), expected, 1e-12 * std::max(1.0, expected)) << "n=" << n;
    }
  }
}

TEST(Kl, IsExactlyZeroForEqualRowsAndForRowsThatDifferByAConstant) {
  const auto row = random_logits(49152, "row", 40);
  EXPECT_EQ(kl_nats(row, row), 0.0);
  std::vector<double> a(row.begin(), row.end());
  std::vector<double> b = a;
  for (double& x : b) x += 4;
  EXPECT_NEAR(kl_nats(a, b), 0.0, 1e-14);
}

TEST(Kl, IsNotSymmetricAndTakesTheFullCacheFirst) {
  const std::vector<float> full = {0, 0};
  const std::vector<float> lossy = {2, 0};
  EXPECT_NEAR(kl_nats(full, lossy), 0.43378083048302696, 1e-15);
  EXPECT_GT(std::abs(kl_nats(lossy, full) - kl_nats(full, lossy)), 0.01);
}

TEST(Kl, ExcludedTokensCountNothingInTheFullRowAndEverythingInTheLossyRow) {
  const std::vector<float> masked = {1, -kInf, 0};
  EXPECT_EQ(kl_nats(masked, masked), 0.0);
  EXPECT_NEAR(kl_nats(masked, std::vector<float>{1, 5, 0}), std::log(1 + std::exp(5) / (std::exp(1) + 1)), 1e-12);
  EXPECT_EQ(kl_nats(std::vector<float>{1, 5, 0}, masked), kInf);
}

TEST(Kl, StaysFiniteWhereTheLossyProbabilityUnderflows) {
  EXPECT_NEAR(kl_nats(std::vector<float>{2000, 0}, std::vector<float>{0, 2000}), 2000.0, 1e-9);
}

TEST(Kl, NanInTheLogitsIsNotHidden) {
  EXPECT_TRUE(std::isnan(kl_nats(std::vector<float>{1, NAN, 0}, std::vector<float>{1, 2, 0})));
  EXPECT_TRUE(std::isnan(kl_nats(std::vector<float>{1, 2, 0}, std::vector<float>{1, NAN, 0})));
}

TEST(Kl, RowsOfDifferentLengthAreOurMistake) {
  EXPECT_THROW((void)kl_nats(std::vector<float>{1, 2}, std::vector<float>{1}), InternalError);
  EXPECT_THROW((void)kl_nats(std::vector<float>{}, std::vector<float>{}), InternalError);
}

TEST(Kl, Top1TakesTheLowestOfEqualLogits) {
  const std::vector<float> tied = {0, 3, 3};
  const std::vector<float> second = {0, 2, 3};
  EXPECT_TRUE(step_divergence(tied, tied, -1).top1_agrees);
  EXPECT_FALSE(step_divergence(tied, second, -1).top1_agrees);
}

TEST(Kl, SequenceSumsMeansAndTheNinetyFifthPercentile) {
  std::vector<StepDivergence> steps(20);
  for (size_t i = 0; i < steps.size(); ++i) steps[i] = {static_cast<double>(i), i % 2 == 0, -0.5};
  const SequenceDivergence sequence = sequence_divergence(steps);
  EXPECT_EQ(sequence.kl_nats_sum, 190);
  EXPECT_EQ(sequence.kl_nats_mean, 9.5);
  EXPECT_NEAR(sequence.kl_nats_p95, 18.05, 1e-12);
  EXPECT_EQ(sequence.top1_agreement, 0.5);
  EXPECT_EQ(sequence.log_ratio_nats_sum, -10);
}

TEST(FirstDivergence, IsThePositionOrNothing) {
  const std::vector<int64_t> a = {1, 2, 3};
  EXPECT_EQ(first_divergence(a, a), std::nullopt);
  EXPECT_EQ(first_divergence(a, std::vector<int64_t>{1, 9, 3}), 1);
  EXPECT_EQ(first_divergence(a, std::vector<int64_t>{1, 2}), 2);
  EXPECT_EQ(first_divergence(std::vector<int64_t>{}, a), 0);
}

TEST(Acceptance, AVerifyRowOfTheWrongLengthIsOurMistake) {
  EXPECT_THROW((void)verify_round({.draft = {1, 2}, .verify = {1, 2}}), InternalError);
}

TEST(Acceptance, AnEmptyDraftEmitsTheVerifiersToken) {
  const RoundOutcome outcome = verify_round({.draft = {}, .verify = {5}});
  EXPECT_EQ(outcome.accepted, 0);
  EXPECT_EQ(outcome.emitted, std::vector<int64_t>{5});
  EXPECT_EQ(summarize_rounds(std::vector<RoundOutcome>{outcome}).acceptance_rate(), 0.0);
}

TEST(Selection, TopKIsCutToTheSizeAndOverlapIsOverTheWantedSet) {
  const std::vector<double> values = {0.1, 0.4, 0.4};
  EXPECT_EQ(top_k_indices(values, 1), std::vector<int64_t>{1});
  EXPECT_EQ(top_k_indices(values, 9).size(), 3u);
  EXPECT_EQ(overlap(std::vector<int64_t>{1, 2, 3, 4}, std::vector<int64_t>{4, 9}), 0.5);
  EXPECT_EQ(overlap(std::vector<int64_t>{1}, std::vector<int64_t>{}), 0.0);
  EXPECT_EQ(jaccard(std::vector<int64_t>{}, std::vector<int64_t>{}), 1.0);
  EXPECT_THROW((void)attention_hit_rate(values, std::vector<int64_t>{3}), InternalError);
}

/// SpeCache's Figure 2: of the true top-k the share that was selected, however many were selected.
TEST(Selection, RecomputedOverlapIsAShareOfTheTrueTopK) {
  const nlohmann::json row = {{"attention_weights", {0.4, 0.3, 0.2, 0.1}}, {"selected", {0, 2, 3}}, {"k", 2}};
  const auto recompute = find_metric("attention_hit_rate").vectors.at("attention_hit_rate");
  EXPECT_EQ(recompute(row, {}).at("expected").at("overlap_with_topk"), 0.5);
}

TEST(Embedding, ZeroVectorsHaveNoDirection) {
  const std::vector<float> zero = {0, 0};
  const std::vector<float> one = {1, 0};
  EXPECT_EQ(cosine_similarity(zero, one), 0.0);
  EXPECT_EQ(l2_normalized({0, 0}), (std::vector<double>{0, 0}));
}

// --- top-k divergence of servers

/// A step whose likeliest `k` tokens are named.
NamedStep told(const std::vector<double>& p, size_t token, size_t k) {
  std::vector<size_t> order(p.size());
  for (size_t i = 0; i < p.size(); ++i) order[i] = i;
  std::ranges::sort(order, [&](size_t a, size_t b) { return p[a] > p[b]; });
  NamedStep step{.token = std::to_string(token), .log_probability = std::log(p[token]), .likeliest = {}};
  for (size_t i = 0; i < k; ++i) step.likeliest[std::to_string(order[i])] = std::log(p[order[i]]);
  return step;
}

std::vector<double> random_distribution(size_t n, const char* name) {
  std::vector<double> p;
  double sum = 0;
  for (const float logit : random_logits(n, name, 8)) sum += p.emplace_back(std::exp(logit));
  for (double& share : p) share /= sum;
  return p;
}

TEST(TopkDivergence, IsBelowTheDivergenceAndMeetsItWhereAllIsNamed) {
  constexpr size_t kTokens = 50;
  const std::vector<double> p = random_distribution(kTokens, "p"), q = random_distribution(kTokens, "q");
  double whole = 0;
  for (size_t i = 0; i < kTokens; ++i) whole += p[i] * std::log(p[i] / q[i]);
  for (const size_t k : {0, 1, 5, 20, 40}) {
    for (const size_t token : {size_t{0}, size_t{7}, size_t{49}}) {
      const TopkDivergence found = topk_divergence(told(p, token, k), told(q, token, k));
      EXPECT_LE(found.kl_nats, whole + 1e-12) << k;
      EXPECT_GE(found.kl_nats, 0) << k;
      EXPECT_NEAR(found.log_probability_lost, std::log(p[token] / q[token]), 1e-12);
    }
  }
  EXPECT_NEAR(topk_divergence(told(p, 3, kTokens), told(q, 3, kTokens)).kl_nats, whole, 1e-7);
  const TopkDivergence same = topk_divergence(told(p, 3, 20), told(p, 3, 20));
  EXPECT_EQ(same.kl_nats, 0);
  EXPECT_TRUE(same.top1_agrees);
}

TEST(TopkDivergence, LumpsWhatOnlyOneNames) {
  const NamedStep full{
      .token = "a", .log_probability = std::log(0.5), .likeliest = {{"a", std::log(0.5)}, {"b", std::log(0.3)}}};
  const NamedStep lossy{.token = "a", .log_probability = std::log(0.25), .likeliest = {{"c", std::log(0.6)}}};
  const TopkDivergence found = topk_divergence(full, lossy);
  EXPECT_NEAR(found.kl_nats, 0.5 * std::log(0.5 / 0.25) + 0.5 * std::log(0.5 / 0.75), 1e-12);
  EXPECT_FALSE(found.top1_agrees);
}

}  // namespace
}  // namespace kvarena::metrics
