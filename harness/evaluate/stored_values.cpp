#include "harness/evaluate/stored_values.h"

#include "metrics/statistics.h"

namespace kvarena::evaluate {

results::MetricValue stored_value(const metrics::StoredMetric& metric, double value, Origin origin) {
  return {.metric = metric.name, .value = value, .unit = metric.unit, .clock = origin.clock, .storage = origin.storage};
}

void add(results::SampleResult& result, const metrics::StoredMetric& metric, double value, Origin origin) {
  result.values.push_back(stored_value(metric, value, origin));
}

void add_series(results::SampleResult& result, const metrics::StoredSeries& series, std::vector<float> values,
                Origin origin) {
  result.series.push_back({.name = series.name,
                           .values = std::move(values),
                           .unit = series.unit,
                           .clock = origin.clock,
                           .storage = origin.storage});
}

void add_repeats(results::SampleResult& result, const metrics::StoredMetric& metric, std::span<const double> repeats,
                 Origin origin) {
  if (repeats.empty()) return;
  add(result, metric, metrics::percentile(repeats, 50), origin);
  add_series(result, metric, {repeats.begin(), repeats.end()}, origin);
}

}  // namespace kvarena::evaluate
