#include "metrics/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/core/error.h"
#include "harness/core/random.h"

namespace kvarena::metrics {
namespace {

std::vector<double> normal_values(size_t n, double mean, double deviation, uint64_t seed) {
  const RandomStream stream(seed, "normal values");
  std::vector<double> values(n);
  for (size_t i = 0; i < n; ++i)
    values[i] = mean + deviation * normal_quantile(1e-12 + stream.uniform(i) * (1 - 2e-12));
  return values;
}

TEST(Bootstrap, IsTheSameForTheSameSeedAndAnotherForAnother) {
  const auto values = normal_values(50, 0, 1, 1);
  const auto a = bootstrap_mean(values, {.resamples = 500, .seed = 3});
  const auto b = bootstrap_mean(values, {.resamples = 500, .seed = 3});
  const auto c = bootstrap_mean(values, {.resamples = 500, .seed = 4});
  EXPECT_EQ(a.interval.low, b.interval.low);
  EXPECT_EQ(a.interval.high, b.interval.high);
  EXPECT_NE(a.interval.low, c.interval.low);
}

TEST(Bootstrap, IntervalHasTheWidthTheoryGives) {
  const auto values = normal_values(400, 5, 2, 2);
  const auto estimate = bootstrap_mean(values);
  const double half = 1.959963985 * standard_deviation_of(values) / std::sqrt(400.0);
  EXPECT_NEAR(estimate.interval.low, estimate.mean - half, 0.1 * half);
  EXPECT_NEAR(estimate.interval.high, estimate.mean + half, 0.1 * half);
}

// 200 studies of 40 samples: a 95 % interval covers the truth in about 95 % (percentile intervals a little less).
TEST(Bootstrap, CoversTheTrueMeanAboutAsOftenAsItClaims) {
  int covered = 0;
  for (uint64_t study = 0; study < 200; ++study) {
    const auto values = normal_values(40, 1, 1, 100 + study);
    const auto estimate = bootstrap_mean(values, {.resamples = 400, .seed = study});
    covered += estimate.interval.low <= 1 && 1 <= estimate.interval.high;
  }
  EXPECT_GE(covered, 178);
  EXPECT_LE(covered, 199);
}

TEST(Bootstrap, ColumnsTogetherGetWhatEachGetsAlone) {
  for (const int64_t n : {1, 7, 400, 20'000}) {  // of the last one draws are not kept
    std::vector<std::vector<double>> columns;
    for (uint64_t seed = 0; seed < 11; ++seed) columns.push_back(normal_values(n, 5, 2, seed));
    const ResamplingOptions options{.resamples = 301, .seed = 3};
    const auto together = bootstrap_means(columns, options);
    ASSERT_EQ(together.size(), columns.size());
    for (size_t i = 0; i < columns.size(); ++i) {
      const auto alone = bootstrap_mean(columns[i], options);
      EXPECT_EQ(together[i].mean, alone.mean);
      EXPECT_EQ(together[i].interval.low, alone.interval.low);
      EXPECT_EQ(together[i].interval.high, alone.interval.high);
      EXPECT_EQ(together[i].samples, alone.samples);
    }
  }
  EXPECT_TRUE(bootstrap_means({}).empty());
}

TEST(Bootstrap, OneSampleHasNoWidth) {
  const auto estimate = bootstrap_mean(std::vector<double>{0.25});
  EXPECT_EQ(estimate.interval.low, 0.25);
  EXPECT_EQ(estimate.interval.high, 0.25);
}

TEST(Bootstrap, RefusesNothingAndWhatIsNotANumber) {
  EXPECT_THROW((void)bootstrap_mean(std::vector<double>{}), UserError);
  try {
    (void)bootstrap_mean(std::vector<double>{1.0, NAN});
    FAIL() << "NaN passed";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("sample 1"), std::string::npos) << error.what();
  }
}

// By hand: differences 1, 2, 3. Of the 8 sign patterns two have |sum| >= 6, so p = 2/8.
TEST(PairedDifference, CountsAllSignPatternsWhenTheyAreFew) {
  const auto result = paired_difference(std::vector<double>{2, 4, 6}, std::vector<double>{1, 2, 3});
  EXPECT_TRUE(result.exact_p_value);
  EXPECT_EQ(result.p_value, 0.25);
  EXPECT_EQ(result.difference, 2);
  EXPECT_EQ(result.standard_deviation, 1);
  EXPECT_EQ(result.wins, 3);
  EXPECT_EQ(result.losses, 0);
}

TEST(PairedDifference, EqualRunsHaveNoDifferenceAndPOne) {
  const std::vector<double> scores = {0.1, 0.9, 0.4};
  const auto result = paired_difference(scores, scores);
  EXPECT_EQ(result.difference, 0);
  EXPECT_EQ(result.p_value, 1);
  EXPECT_EQ(result.interval.low, 0);
  EXPECT_EQ(result.interval.high, 0);
}

TEST(PairedDifference, DrawnPatternsAgreeWithCountedOnes) {
  const auto method = normal_values(13, 0.5, 1, 5);
  const std::vector<double> baseline(13, 0.0);
  const auto counted = paired_difference(method, baseline, {.resamples = 10000});
  const auto drawn = paired_difference(method, baseline, {.resamples = 8000});
  ASSERT_TRUE(counted.exact_p_value);
  ASSERT_FALSE(drawn.exact_p_value);
  EXPECT_NEAR(drawn.p_value, counted.p_value, 4 * std::sqrt(counted.p_value * (1 - counted.p_value) / 8000));
}

TEST(PairedDifference, MoreThanSixtyFourPairsFlipEachSignAlone) {
  const auto noise = normal_values(150, 0, 1, 6);
  const std::vector<double> zero(150, 0.0);
  auto shifted = noise;
  for (double& x : shifted) x += 0.5;
  EXPECT_LT(paired_difference(shifted, zero).p_value, 0.001);
  EXPECT_GT(paired_difference(noise, zero).p_value, 0.02);
}

TEST(PairedDifference, RefusesRunsOfDifferentLength) {
  EXPECT_THROW((void)paired_difference(std::vector<double>{1, 2}, std::vector<double>{1}), UserError);
}

TEST(PairedDifference, PValueOfNoDifferenceIsUniform) {
  int small = 0;
  for (uint64_t study = 0; study < 300; ++study) {
    const auto a = normal_values(12, 0, 1, 1000 + study);
    const auto b = normal_values(12, 0, 1, 5000 + study);
    small += paired_difference(a, b, {.resamples = 300, .seed = study}).p_value <= 0.1;
  }
  EXPECT_NEAR(small, 30, 20);  // 4 standard deviations
}

TEST(SignFlip, AFewPairsCannotReachASmallPValue) {
  EXPECT_EQ(smallest_sign_flip_p(1), 1);
  EXPECT_EQ(smallest_sign_flip_p(5), 0.0625);
  EXPECT_EQ(smallest_sign_flip_p(6), 0.03125);
  for (const int64_t pairs : {1, 2, 5, 6, 9}) {
    const std::vector<double> ones(static_cast<size_t>(pairs), 1.0), zeros(static_cast<size_t>(pairs), 0.0);
    EXPECT_EQ(paired_difference(zeros, ones).p_value, smallest_sign_flip_p(pairs)) << pairs;
  }
}

TEST(Hochberg, AdjustsAsTheTextbookExample) {
  const auto adjusted = hochberg(std::vector<double>{0.01, 0.04, 0.03, 0.005});
  EXPECT_NEAR(adjusted[3], 0.02, 1e-15);
  EXPECT_NEAR(adjusted[0], 0.03, 1e-15);
  EXPECT_NEAR(adjusted[2], 0.04, 1e-15) << "never above one that was larger";
  EXPECT_NEAR(adjusted[1], 0.04, 1e-15);
  EXPECT_EQ(hochberg(std::vector<double>{0.9, 0.8})[0], 0.9);
  EXPECT_EQ(hochberg(std::vector<double>(3, 0.03125))[1], 0.03125) << "where all are small, all are shown";
  EXPECT_TRUE(hochberg(std::vector<double>{}).empty());
}

TEST(Normal, QuantilesAreTheTabulatedOnes) {
  EXPECT_NEAR(normal_quantile(0.975), 1.959963984540054, 1e-13);
  EXPECT_NEAR(normal_quantile(0.8), 0.8416212335729143, 1e-13);
  EXPECT_NEAR(normal_quantile(0.5), 0.0, 1e-13);
  EXPECT_NEAR(normal_quantile(1e-10), -6.361340902404056, 1e-9);
}

TEST(MinimumDetectableDifference, ShrinksWithTheRootOfTheSamples) {
  EXPECT_NEAR(minimum_detectable_difference(1, 1), 1.959963984540054 + 0.8416212335729143, 1e-12);
  EXPECT_NEAR(minimum_detectable_difference(0.3, 400), 0.3 * 2.801585218112968 / 20, 1e-12);
}

TEST(Percentile, InterpolatesAsNumpy) {
  const std::vector<double> values = {4, 1, 3, 2};
  EXPECT_EQ(percentile(values, 50), 2.5);
  EXPECT_EQ(percentile(values, 0), 1);
  EXPECT_EQ(percentile(values, 100), 4);
  EXPECT_NEAR(percentile(values, 99), 3.97, 1e-12);
  EXPECT_EQ(percentile(std::vector<double>{7}, 99), 7);
}

std::vector<std::vector<double>> one_sample_each(const std::vector<double>& values) {
  std::vector<std::vector<double>> rows;
  for (const double value : values) rows.push_back({value});
  return rows;
}

// scipy 1.17.1: rankdata and kendalltau.
TEST(Ranks, OfMeansAndTheirAgreementAreThoseOfScipy) {
  const auto ranked = bootstrap_ranks(one_sample_each({12, 2, 1, 12, 2}));
  const std::vector<double> expected{4.5, 2.5, 1, 4.5, 2.5};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(ranked[i].rank, expected[i]);
  const auto tau = [](const std::vector<double>& a, const std::vector<double>& b) {
    return kendall_tau(one_sample_each(a), one_sample_each(b), /*same_samples=*/false).tau;
  };
  EXPECT_NEAR(tau({12, 2, 1, 12, 2}, {1, 4, 7, 1, 0}), -0.4714045207910316, 1e-15);
  EXPECT_EQ(tau({1, 2, 3, 4}, {1, 2, 3, 4}), 1);
  EXPECT_NEAR(tau({1, 2, 3, 4, 5, 6}, {6, 1, 5, 2, 4, 3}), -0.2, 1e-15);
  EXPECT_NEAR(tau({0.1, 0.3, 0.3, 0.2, 0.9}, {0.2, 0.25, 0.5, 0.1, 0.4}), 0.5270462766947299, 1e-15);
  EXPECT_TRUE(std::isnan(tau({1, 1}, {1, 2})));
}

// Two methods whose values always lie 10 apart keep their places; two of one distribution change theirs in half of the
// resamples.
TEST(Ranks, IntervalsSayWhichPlacesSamplesDecide) {
  const auto a = normal_values(30, 0, 1, 5), b = normal_values(30, 0, 1, 6);
  std::vector<double> far = a;
  for (double& value : far) value += 10;
  const auto ranked = bootstrap_ranks(std::vector<std::vector<double>>{far, a, b});
  EXPECT_EQ(ranked[0].interval.low, 3);
  EXPECT_EQ(ranked[0].interval.high, 3);
  for (const size_t i : {1, 2}) {
    EXPECT_EQ(ranked[i].interval.low, 1);
    EXPECT_EQ(ranked[i].interval.high, 2);
  }
  const std::vector<std::vector<double>> order{far, a, b};
  const OrderAgreement agreement = kendall_tau(order, order, /*same_samples=*/false);
  EXPECT_EQ(agreement.tau, 1);
  EXPECT_LT(agreement.interval.low, 0.5);
  EXPECT_EQ(agreement.interval.high, 1);
  const OrderAgreement together = kendall_tau(order, order, /*same_samples=*/true);
  EXPECT_EQ(together.interval.low, 1) << "an order agrees with itself in each draw";
}

// Twelve methods with true means 0.5 apart, judged twice on eight samples of their own with noise of deviation 1: the
// agreement of many such pairs of studies is within the interval about as often as it claims.
TEST(Ranks, AgreementsOfNewStudiesLieInTheInterval) {
  const auto study = [](uint64_t seed) {
    std::vector<std::vector<double>> values;
    for (uint64_t method = 0; method < 12; ++method)
      values.push_back(normal_values(8, 0.5 * static_cast<double>(method), 1, 1000 * seed + method));
    return values;
  };
  std::vector<double> all;
  for (uint64_t seed = 1; seed <= 400; seed += 2)
    all.push_back(kendall_tau(study(seed), study(seed + 1), false, {.resamples = 1}).tau);
  const double expected = mean_of(all);
  int held = 0;
  for (uint64_t seed = 1; seed <= 200; seed += 2) {
    const OrderAgreement found = kendall_tau(study(seed), study(seed + 1), false, {.resamples = 200});
    EXPECT_LE(found.interval.low, found.tau);
    EXPECT_GE(found.interval.high, found.tau);
    held += found.interval.low <= expected && expected <= found.interval.high;
  }
  EXPECT_GE(held, 88);
}

TEST(Ranks, RefuseUnequalSamplesAndMethods) {
  EXPECT_THROW((void)bootstrap_ranks(std::vector<std::vector<double>>{{1, 2}, {1}}), UserError);
  EXPECT_THROW((void)bootstrap_ranks(std::vector<std::vector<double>>{{NAN}, {1}}), UserError);
  EXPECT_THROW((void)kendall_tau(one_sample_each({1, 2}), one_sample_each({1}), false), UserError);
}

}  // namespace
}  // namespace kvarena::metrics
