// Orders of methods by their means over samples, and how far samples decide them.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "harness/core/error.h"
#include "harness/core/random.h"
#include "metrics/statistics.h"

namespace kvarena::metrics {
namespace {

using Methods = std::span<const std::vector<double>>;  // [methods] of [samples]

void require_alike(Methods values) {
  for (const std::vector<double>& row : values) {
    if (!row.empty() && row.size() == values.front().size() &&
        std::ranges::all_of(row, [](double value) { return std::isfinite(value); }))
      continue;
    fail({.place = "ranks of methods",
          .found = fmt::format("{} values beside {}, or one that is not finite", row.size(), values.front().size()),
          .expected = "finite values of the same samples for every method"});
  }
}

/// Sums over the samples that draw `resample` takes; over all of them for -1.
std::vector<double> sums(Methods values, const RandomStream& draws, int64_t resample) {
  std::vector<double> all(values.size());
  const size_t n = values.front().size();
  for (size_t i = 0; i < n; ++i) {
    const size_t sample = resample < 0 ? i : draws.below(n, static_cast<uint64_t>(resample) * n + i);
    for (size_t m = 0; m < values.size(); ++m) all[m] += values[m][sample];
  }
  return all;
}

std::vector<double> ranks(const std::vector<double>& means) {
  std::vector<size_t> order(means.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](size_t m) { return means[m]; });
  std::vector<double> all(means.size());
  for (size_t first = 0, last = 0; first < order.size(); first = last) {
    while (last < order.size() && means[order[last]] == means[order[first]]) ++last;
    for (size_t i = first; i < last; ++i) all[order[i]] = static_cast<double>(first + last + 1) / 2;
  }
  return all;
}

double tau(const std::vector<double>& a, const std::vector<double>& b) {
  double both = 0, of_a = 0, of_b = 0;
  const auto sign = [](double x) { return static_cast<double>((x > 0) - (x < 0)); };
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const double x = sign(a[i] - a[j]), y = sign(b[i] - b[j]);
      both += x * y;
      of_a += x * x;
      of_b += y * y;
    }
  }
  return of_a * of_b > 0 ? both / std::sqrt(of_a * of_b) : std::numeric_limits<double>::quiet_NaN();
}

/// The interval around an agreement whose resamples spread so.
Interval around(double agreement, std::vector<double> drawn, double confidence) {
  if (std::isnan(agreement)) return {};
  std::erase_if(drawn, [](double value) { return std::isnan(value); });
  const double half = normal_quantile((1 + confidence) / 2) * standard_deviation_of(drawn);
  return {std::max(-1.0, agreement - half), std::min(1.0, agreement + half)};
}

}  // namespace

std::vector<RankEstimate> bootstrap_ranks(Methods values, const ResamplingOptions& options) {
  require_alike(values);
  if (values.empty()) return {};
  const RandomStream draws(options.seed, "ranks");
  std::vector<RankEstimate> all;
  for (const double rank : ranks(sums(values, draws, -1))) all.push_back({.rank = rank});
  std::vector<std::vector<double>> drawn(values.size());
  for (int64_t r = 0; r < options.resamples; ++r) {
    const std::vector<double> once = ranks(sums(values, draws, r));
    for (size_t m = 0; m < once.size(); ++m) drawn[m].push_back(once[m]);
  }
  for (size_t m = 0; m < all.size(); ++m) {
    const double tail = 50 * (1 - options.confidence);  // percent on each side
    all[m].interval = {std::min(percentile(drawn[m], tail), all[m].rank),
                       std::max(percentile(drawn[m], 100 - tail), all[m].rank)};
  }
  return all;
}

OrderAgreement kendall_tau(Methods a, Methods b, bool same_samples, const ResamplingOptions& options) {
  require_alike(a);
  require_alike(b);
  if (a.size() != b.size()) {
    fail({.place = "agreement of two orders",
          .found = fmt::format("{} methods and {}", a.size(), b.size()),
          .expected = "the same methods"});
  }
  if (a.empty()) return {.tau = std::numeric_limits<double>::quiet_NaN()};
  KVARENA_ASSERT(!same_samples || a.front().size() == b.front().size(),
                 fmt::format("{} samples and {}", a.front().size(), b.front().size()));
  const RandomStream of_a(options.seed, "order a"), of_b(options.seed, same_samples ? "order a" : "order b");
  OrderAgreement agreement{.tau = tau(sums(a, of_a, -1), sums(b, of_b, -1))};
  std::vector<double> drawn;
  for (int64_t r = 0; r < options.resamples; ++r) drawn.push_back(tau(sums(a, of_a, r), sums(b, of_b, r)));
  agreement.interval = around(agreement.tau, std::move(drawn), options.confidence);
  return agreement;
}

}  // namespace kvarena::metrics
