#include "reports/timing.h"

#include <algorithm>
#include <cmath>

#include "metrics/stored_metrics.h"
#include "reports/verdict.h"

namespace kvarena::reports {
namespace {

using Repeats = std::vector<double>;

/// Repeats of one sample.
struct Pair {
  Repeats method, baseline;
};

Repeats repeats_of(const CellData& cell, const std::string& metric, const std::string& sample) {
  const auto series = cell.series->find(metric);
  if (series == cell.series->end()) return {};
  for (const results::SeriesRow& row : series->second) {
    if (row.sample_id == sample) return finite({row.series.values.begin(), row.series.values.end()});
  }
  return {};
}

std::vector<Pair> pairs_of(const ExperimentData& data, const std::string& method, const std::string& metric) {
  std::vector<Pair> pairs;
  for (const std::string& workload : data.workloads()) {
    const CellData* ours = data.find(method, workload, results::CellKind::timing);
    const CellData* theirs = data.find(data.baseline(), workload, results::CellKind::timing);
    if (ours == nullptr || theirs == nullptr || !ours->counts() || !theirs->counts()) continue;
    const auto series = ours->series->find(metric);
    if (series == ours->series->end()) continue;
    for (const results::SeriesRow& row : series->second) {
      Pair pair{.method = repeats_of(*ours, metric, row.sample_id),
                .baseline = repeats_of(*theirs, metric, row.sample_id)};
      if (!pair.method.empty() && !pair.baseline.empty()) pairs.push_back(std::move(pair));
    }
  }
  return pairs;
}

/// 1 when all of a's repeats are larger than all of b's, -1 when all are smaller, 0 elsewhere.
int side(const Pair& pair) {
  const auto [low, high] = std::ranges::minmax(pair.method);
  const auto [base_low, base_high] = std::ranges::minmax(pair.baseline);
  return low > base_high ? 1 : high < base_low ? -1 : 0;
}

/// Chance that `a` values drawn like `b` others all come out on one given side of them: 1 in binomial(a + b, a).
double chance_of_side(size_t a, size_t b) {
  double ways = 1;
  for (size_t i = 1; i <= a; ++i) ways *= static_cast<double>(b + i) / static_cast<double>(i);
  return 1 / ways;
}

}  // namespace

std::optional<TimeTest> time_test(const ExperimentData& data, const std::string& method, const std::string& metric) {
  const std::vector<Pair> pairs = pairs_of(data, method, metric);
  if (pairs.empty()) return std::nullopt;
  TimeTest test;
  double logs = 0, chance = 1;
  std::vector<double> differences;
  for (const Pair& pair : pairs) {
    const double ours = metrics::percentile(pair.method, 50), theirs = metrics::percentile(pair.baseline, 50);
    differences.push_back(ours - theirs);
    if (ours > 0 && theirs > 0) logs += std::log(ours / theirs);
    chance *= chance_of_side(pair.method.size(), pair.baseline.size());
  }
  test.ratio = std::exp(logs / static_cast<double>(pairs.size()));
  test.difference = metrics::percentile(differences, 50);
  const auto [least, largest] = std::ranges::minmax(differences);
  test.interval = {least, largest};
  test.p_value = std::min(1.0, 2 * chance);
  const int first = side(pairs.front());
  const bool apart = first != 0 && std::ranges::all_of(pairs, [&](const Pair& pair) { return side(pair) == first; });
  if (test.p_value >= kLevel) {
    test.verdict = Verdict::too_few;
  } else {
    test.verdict = apart ? direction_of(first, look_of(data, metric).better) : Verdict::no_difference;
  }
  return test;
}

bool share_prefill(const ExperimentData& data) {
  return std::ranges::none_of(data.cells, [](const CellData& cell) {
    const bool timed =
        cell.row.cell.kind == results::CellKind::timing && cell.values->contains(metrics::kPrefillMs.name);
    return timed && !cell.values->contains(metrics::kObserveMs.name);
  });
}

}  // namespace kvarena::reports
