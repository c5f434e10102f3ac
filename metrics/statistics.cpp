#include "metrics/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/core/error.h"
#include "harness/core/random.h"

namespace kvarena::metrics {
namespace {

void check_values(std::span<const double> values, const char* what) {
  if (values.empty()) fail({.place = what, .found = "no samples", .expected = "at least one"});
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    fail({.place = fmt::format("{}: sample {}", what, i),
          .found = fmt::format("{}", values[i]),
          .expected = "a finite number",
          .action = "leave failed samples out of the comparison and report how many"});
  }
}

// numpy's linear rule on sorted values.
double sorted_percentile(std::span<const double> sorted, double p) {
  const double place = static_cast<double>(sorted.size() - 1) * p / 100;
  const auto below = static_cast<size_t>(std::clamp(std::floor(place), 0.0, static_cast<double>(sorted.size() - 1)));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - static_cast<double>(below));
}

Interval bootstrap_interval(std::span<const double> values, const ResamplingOptions& options) {
  const RandomStream draws(options.seed, "bootstrap");
  const auto n = static_cast<uint64_t>(values.size());
  std::vector<double> means(static_cast<size_t>(options.resamples));
  for (size_t r = 0; r < means.size(); ++r) {
    double sum = 0;
    for (uint64_t i = 0; i < n; ++i) sum += values[draws.below(n, r * n + i)];
    means[r] = sum / static_cast<double>(n);
  }
  std::sort(means.begin(), means.end());
  const double tail = 50 * (1 - options.confidence);  // percent on each side
  return {sorted_percentile(means, tail), sorted_percentile(means, 100 - tail)};
}

double signed_sum(std::span<const double> values, uint64_t signs, double sum) {
  for (size_t i = 0; i < values.size(); ++i) sum += (signs >> i & 1) != 0 ? -values[i] : values[i];
  return sum;
}

struct PermutationResult {
  double p_value = 1;
  bool exact = false;
};

PermutationResult sign_flip_test(std::span<const double> differences, const ResamplingOptions& options) {
  std::vector<double> moved;  // a zero difference is the same under both signs
  std::copy_if(differences.begin(), differences.end(), std::back_inserter(moved), [](double d) { return d != 0; });
  if (moved.empty()) return {1.0, true};
  const double observed = std::abs(std::accumulate(moved.begin(), moved.end(), 0.0));
  double magnitude = 0;
  for (const double d : moved) magnitude += std::abs(d);
  const double threshold = observed - 1e-12 * magnitude;  // sums in another order must still count as equal

  const size_t n = moved.size();
  if (n < 40 && (int64_t{1} << n) <= options.resamples) {
    int64_t extreme = 0;
    for (uint64_t signs = 0; signs < uint64_t{1} << n; ++signs)
      extreme += std::abs(signed_sum(moved, signs, 0)) >= threshold;
    return {static_cast<double>(extreme) / static_cast<double>(int64_t{1} << n), true};
  }
  const RandomStream draws(options.seed, "permutation");
  const size_t words = (n + 63) / 64;
  int64_t extreme = 1;  // the observed pattern itself
  for (uint64_t r = 0; r < static_cast<uint64_t>(options.resamples); ++r) {
    double sum = 0;
    for (size_t w = 0; w < words; ++w) {
      const size_t first = w * 64;
      const auto part = std::span(moved).subspan(first, std::min<size_t>(64, n - first));
      sum = signed_sum(part, draws.bits(r * words + w), sum);
    }
    extreme += std::abs(sum) >= threshold;
  }
  return {static_cast<double>(extreme) / static_cast<double>(options.resamples + 1), false};
}

void check_options(const ResamplingOptions& options) {
  KVARENA_ASSERT(options.resamples >= 1, fmt::format("resamples={}", options.resamples));
  KVARENA_ASSERT(options.confidence > 0 && options.confidence < 1, fmt::format("confidence={}", options.confidence));
}

}  // namespace

double mean_of(std::span<const double> values) {
  return values.empty() ? 0.0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double standard_deviation_of(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double mean = mean_of(values);
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double percentile(std::span<const double> values, double p) {
  if (values.empty()) fail({.place = "percentile", .found = "no values", .expected = "at least one"});
  KVARENA_ASSERT(p >= 0 && p <= 100, fmt::format("p={}", p));
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted_percentile(sorted, p);
}

MeanEstimate bootstrap_mean(std::span<const double> values, const ResamplingOptions& options) {
  check_options(options);
  check_values(values, "bootstrap of a mean");
  return {mean_of(values), bootstrap_interval(values, options), static_cast<int64_t>(values.size())};
}

PairedDifference paired_difference(std::span<const double> method, std::span<const double> baseline,
                                   const ResamplingOptions& options) {
  check_options(options);
  if (method.size() != baseline.size()) {
    fail({.place = "paired comparison",
          .found = fmt::format("{} samples of the method and {} of the baseline", method.size(), baseline.size()),
          .expected = "the same samples in the same order",
          .action = "compare on the samples both runs finished"});
  }
  check_values(method, "paired comparison, method");
  check_values(baseline, "paired comparison, baseline");
  PairedDifference result;
  std::vector<double> differences(method.size());
  for (size_t i = 0; i < method.size(); ++i) {
    differences[i] = method[i] - baseline[i];
    result.wins += differences[i] > 0;
    result.losses += differences[i] < 0;
  }
  result.samples = static_cast<int64_t>(method.size());
  result.method_mean = mean_of(method);
  result.baseline_mean = mean_of(baseline);
  result.difference = mean_of(differences);
  result.standard_deviation = standard_deviation_of(differences);
  result.interval = bootstrap_interval(differences, options);
  const PermutationResult test = sign_flip_test(differences, options);
  result.p_value = test.p_value;
  result.exact_p_value = test.exact;
  return result;
}

double smallest_sign_flip_p(int64_t pairs) { return std::min(1.0, std::exp2(static_cast<double>(1 - pairs))); }

std::vector<double> hochberg(std::span<const double> p_values) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p_values[a] > p_values[b]; });
  std::vector<double> adjusted(p_values.size());
  double smallest = 1;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    smallest = std::min(smallest, static_cast<double>(rank + 1) * p_values[order[rank]]);
    adjusted[order[rank]] = smallest;
  }
  return adjusted;
}

double normal_quantile(double probability) {
  KVARENA_ASSERT(probability > 0 && probability < 1, fmt::format("probability={}", probability));
  // Bisection on erfc: a few microseconds, exact to the last digits, and nothing to tabulate.
  double low = -40;
  double high = 40;
  const auto cdf = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  for (int i = 0; i < 200 && high - low > 1e-15 * std::max(1.0, std::abs(low)); ++i) {
    const double middle = (low + high) / 2;
    (cdf(middle) < probability ? low : high) = middle;
  }
  return (low + high) / 2;
}

double minimum_detectable_difference(double standard_deviation, int64_t samples, double alpha, double power) {
  KVARENA_ASSERT(samples >= 1, fmt::format("samples={}", samples));
  const double z = normal_quantile(1 - alpha / 2) + normal_quantile(power);
  return z * standard_deviation / std::sqrt(static_cast<double>(samples));
}

}  // namespace kvarena::metrics
