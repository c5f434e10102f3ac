#include "metrics/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
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

/// numpy's linear rule, by the two values that it needs. Brings the values into another order.
double select_percentile(std::span<double> values, double p) {
  const double place = static_cast<double>(values.size() - 1) * p / 100;
  const auto below = static_cast<size_t>(std::clamp(std::floor(place), 0.0, static_cast<double>(values.size() - 1)));
  const auto low = values.begin() + static_cast<int64_t>(below);
  std::nth_element(values.begin(), low, values.end());
  const double high = low + 1 == values.end() ? *low : *std::min_element(low + 1, values.end());
  return *low + (high - *low) * (place - static_cast<double>(below));
}

constexpr size_t kLanes = 8;  // resamples that are summed beside each other: one sum waits for its last addition

/// The samples that resamples draw: [ceil(resamples / kLanes), n, kLanes]. They depend on the seed and the two numbers
/// alone, so that the many intervals of a report draw them once.
struct Draws {
  uint64_t seed = 0;
  int64_t resamples = 0;
  size_t n = 0;
  std::vector<uint32_t> places;

  void draw(const RandomStream& stream, size_t first, std::span<uint32_t> block) const {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      for (size_t i = 0; i < n; ++i) {
        block[i * kLanes + lane] = static_cast<uint32_t>(stream.below(n, (first + lane) * n + i));
      }
    }
  }
};

/// Calls `use(first resample, its block of places)` block by block.
template <typename Use>
void for_each_draw(size_t n, const ResamplingOptions& options, Use&& use) {
  constexpr size_t kKept = 4, kLargest = size_t{4} << 20;  // tables, places of one
  const auto resamples = static_cast<size_t>(options.resamples);
  const size_t blocks = (resamples + kLanes - 1) / kLanes, size = n * kLanes;
  const RandomStream stream(options.seed, "bootstrap");
  Draws draws{.seed = options.seed, .resamples = options.resamples, .n = n, .places = {}};
  if (blocks * size > kLargest) {
    draws.places.resize(size);
    for (size_t block = 0; block < blocks; ++block) {
      draws.draw(stream, block * kLanes, draws.places);
      use(block * kLanes, std::span<const uint32_t>(draws.places));
    }
    return;
  }
  thread_local std::vector<Draws> kept;
  auto known = std::ranges::find_if(kept, [&](const Draws& each) {
    return each.seed == options.seed && each.resamples == options.resamples && each.n == n;
  });
  if (known == kept.end()) {
    draws.places.resize(blocks * size);
    for (size_t block = 0; block < blocks; ++block) {
      draws.draw(stream, block * kLanes, std::span(draws.places).subspan(block * size, size));
    }
    if (kept.size() == kKept) kept.erase(kept.begin());
    known = kept.insert(kept.end(), std::move(draws));
  }
  for (size_t block = 0; block < blocks; ++block) {
    use(block * kLanes, std::span<const uint32_t>(known->places).subspan(block * size, size));
  }
}

Interval interval_of(std::vector<double> means, double confidence) {
  const double tail = 50 * (1 - confidence);  // percent on each side
  return {select_percentile(means, tail), select_percentile(means, 100 - tail)};
}

Interval bootstrap_interval(std::span<const double> values, const ResamplingOptions& options) {
  std::vector<double> means(static_cast<size_t>(options.resamples));
  for_each_draw(values.size(), options, [&](size_t first, std::span<const uint32_t> places) {
    std::array<double, kLanes> sums{};
    for (size_t at = 0; at < places.size(); at += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += values[places[at + lane]];
    }
    for (size_t lane = 0; lane < kLanes && first + lane < means.size(); ++lane) {
      means[first + lane] = sums[lane] / static_cast<double>(values.size());
    }
  });
  return interval_of(std::move(means), options.confidence);
}

/// Adds each value to the sum of every lane, negated where the lane's bit of it is set.
void add_signed(std::span<const double> values, const std::array<uint64_t, kLanes>& signs,
                std::array<double, kLanes>& sums) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bits = std::bit_cast<uint64_t>(values[i]);
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += std::bit_cast<double>(bits ^ (signs[lane] >> i << 63));
  }
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
  const auto count = [&](uint64_t patterns, const auto& sums_from) {
    int64_t extreme = 0;
    for (uint64_t first = 0; first < patterns; first += kLanes) {
      const std::array<double, kLanes> sums = sums_from(first);
      for (uint64_t lane = 0; lane < std::min<uint64_t>(kLanes, patterns - first); ++lane)
        extreme += std::abs(sums[lane]) >= threshold;
    }
    return extreme;
  };
  if (n < 40 && (int64_t{1} << n) <= options.resamples) {
    const int64_t extreme = count(uint64_t{1} << n, [&](uint64_t first) {
      std::array<double, kLanes> sums{};
      std::array<uint64_t, kLanes> signs{};
      std::iota(signs.begin(), signs.end(), first);
      add_signed(moved, signs, sums);
      return sums;
    });
    return {static_cast<double>(extreme) / static_cast<double>(int64_t{1} << n), true};
  }
  const RandomStream draws(options.seed, "permutation");
  const size_t words = (n + 63) / 64;
  const int64_t drawn = count(static_cast<uint64_t>(options.resamples), [&](uint64_t first) {
    std::array<double, kLanes> sums{};
    std::array<uint64_t, kLanes> signs{};
    for (size_t w = 0; w < words; ++w) {
      for (size_t lane = 0; lane < kLanes; ++lane) signs[lane] = draws.bits((first + lane) * words + w);
      add_signed(std::span(moved).subspan(w * 64, std::min<size_t>(64, n - w * 64)), signs, sums);
    }
    return sums;
  });
  const int64_t extreme = drawn + 1;  // with the observed pattern itself
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
  std::vector<double> own(values.begin(), values.end());
  return select_percentile(own, p);
}

MeanEstimate bootstrap_mean(std::span<const double> values, const ResamplingOptions& options) {
  check_options(options);
  check_values(values, "bootstrap of a mean");
  return {mean_of(values), bootstrap_interval(values, options), static_cast<int64_t>(values.size())};
}

std::vector<MeanEstimate> bootstrap_means(std::span<const std::vector<double>> columns,
                                          const ResamplingOptions& options) {
  check_options(options);
  std::vector<MeanEstimate> estimates;
  for (size_t begin = 0; begin < columns.size(); begin += kLanes) {
    const auto part = columns.subspan(begin, std::min(kLanes, columns.size() - begin));
    const size_t n = part.front().size();
    std::vector<std::array<double, kLanes>> rows(n);  // each draw adds a row
    for (size_t column = 0; column < part.size(); ++column) {
      check_values(part[column], "bootstrap of a mean");
      KVARENA_ASSERT(part[column].size() == n, fmt::format("{} values beside {}", part[column].size(), n));
      for (size_t i = 0; i < n; ++i) rows[i][column] = part[column][i];
    }
    std::vector<std::vector<double>> means(part.size(), std::vector<double>(static_cast<size_t>(options.resamples)));
    for_each_draw(n, options, [&](size_t first, std::span<const uint32_t> places) {
      for (size_t lane = 0; lane < kLanes && first + lane < means.front().size(); ++lane) {
        std::array<double, kLanes> sums{};
        for (size_t at = lane; at < places.size(); at += kLanes) {
          const std::array<double, kLanes>& row = rows[places[at]];
          for (size_t column = 0; column < kLanes; ++column) sums[column] += row[column];
        }
        for (size_t column = 0; column < part.size(); ++column) {
          means[column][first + lane] = sums[column] / static_cast<double>(n);
        }
      }
    });
    for (size_t column = 0; column < part.size(); ++column) {
      estimates.push_back(
          {mean_of(part[column]), interval_of(std::move(means[column]), options.confidence), static_cast<int64_t>(n)});
    }
  }
  return estimates;
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
