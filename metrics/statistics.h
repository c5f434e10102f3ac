#pragma once
// Error bars and paired comparisons over per-sample values. Every draw comes from a RandomStream keyed by the seed, so
// the same values and seed give the same interval on every machine and thread count.

#include <cstdint>
#include <span>
#include <vector>

namespace kvarena::metrics {

struct Interval {
  double low = 0;
  double high = 0;
};

struct ResamplingOptions {
  int64_t resamples = 10000;
  double confidence = 0.95;
  uint64_t seed = 0;
};

struct MeanEstimate {
  double mean = 0;
  Interval interval;  ///< percentile bootstrap over samples
  int64_t samples = 0;
};

/// Mean with its percentile bootstrap interval. Throws UserError when there are no values or one is not finite.
[[nodiscard]] MeanEstimate bootstrap_mean(std::span<const double> values, const ResamplingOptions& options = {});

/// bootstrap_mean() of each column of as many values as the first has, which are drawn for all of them together.
[[nodiscard]] std::vector<MeanEstimate> bootstrap_means(std::span<const std::vector<double>> columns,
                                                        const ResamplingOptions& options = {});

struct PairedDifference {
  double method_mean = 0;
  double baseline_mean = 0;
  double difference = 0;          ///< mean of method - baseline, sample by sample
  Interval interval;              ///< percentile bootstrap over pairs
  double p_value = 1;             ///< two-sided sign-flip permutation test of the mean difference being zero
  bool exact_p_value = false;     ///< all sign patterns were counted, none drawn
  double standard_deviation = 0;  ///< of the differences, n - 1 in the denominator; 0 for one pair
  int64_t samples = 0;
  int64_t wins = 0;    ///< pairs where the method's value is larger
  int64_t losses = 0;  ///< pairs where the baseline's value is larger
};

/// Method against baseline on the same samples in the same order. The permutation test flips the sign of each
/// difference: it enumerates all patterns of the non-zero differences when they are no more than `resamples`, else it
/// draws and counts the observed pattern in, (k + 1)/(resamples + 1). Throws UserError for different lengths, no
/// values, or values that are not finite.
[[nodiscard]] PairedDifference paired_difference(std::span<const double> method, std::span<const double> baseline,
                                                 const ResamplingOptions& options = {});

/// Ranks of methods by their means, 1 for the least, each with its percentile bootstrap interval, widened to hold the
/// rank: values [methods] of [samples], the same samples in the same order, which are drawn for all methods together.
/// Equal means share the mean of their ranks. Throws UserError for different lengths, no values, or values that are not
/// finite.
struct RankEstimate {
  double rank = 0;
  Interval interval;
};
[[nodiscard]] std::vector<RankEstimate> bootstrap_ranks(std::span<const std::vector<double>> values,
                                                        const ResamplingOptions& options = {.resamples = 1000});

/// Agreement of two orders of the same methods by their means.
struct OrderAgreement {
  double tau = 0;     ///< Kendall's tau-b: 1 for the same order, 0 for none in common, NaN where all means are equal
  Interval interval;  ///< around tau, within -1 and 1: the normal quantile times the bootstrap's standard deviation,
                      ///< since resampled orders agree less than theirs do and percentiles lie below tau
};
/// Values as for bootstrap_ranks(); the two may have other numbers of samples, but not of methods. `same_samples`:
/// those of both orders are the same in the same order, and are drawn for both together.
[[nodiscard]] OrderAgreement kendall_tau(std::span<const std::vector<double>> a, std::span<const std::vector<double>> b,
                                         bool same_samples, const ResamplingOptions& options = {.resamples = 1000});

/// The smallest p-value that the sign-flip test of so many pairs can have, all of one sign: 2/2^pairs.
[[nodiscard]] double smallest_sign_flip_p(int64_t pairs);

/// Hochberg's step-up adjustment: p-values that can be held against one level for the whole family, in input order.
/// Valid where the tests are independent, as those over disjoint samples are.
[[nodiscard]] std::vector<double> hochberg(std::span<const double> p_values);

/// The smallest true mean difference that a two-sided paired test at level `alpha` finds with probability `power`, from
/// the standard deviation of the differences (normal approximation): (z_{1-alpha/2} + z_power) sd / sqrt(n).
[[nodiscard]] double minimum_detectable_difference(double standard_deviation, int64_t samples, double alpha = 0.05,
                                                   double power = 0.8);

/// numpy.percentile with linear interpolation, p in [0, 100]. Throws UserError for no values.
[[nodiscard]] double percentile(std::span<const double> values, double p);

[[nodiscard]] double mean_of(std::span<const double> values);
/// With n - 1 in the denominator; 0 for fewer than two values.
[[nodiscard]] double standard_deviation_of(std::span<const double> values);

/// The x with P(Z <= x) = probability for a standard normal Z, probability in (0, 1).
[[nodiscard]] double normal_quantile(double probability);

}  // namespace kvarena::metrics
