#pragma once
// The one way to put a value or a series into a result: under a name, and with a unit, of metrics/stored_metrics.h.

#include <span>
#include <vector>

#include "harness/results/records.h"
#include "metrics/stored_metrics.h"

namespace kvarena::evaluate {

/// Clock that a number was read from, and whether the bytes and links behind it were really there.
struct Origin {
  results::Clock clock = results::Clock::none;
  results::Storage storage = results::Storage::real;
};

[[nodiscard]] results::MetricValue stored_value(const metrics::StoredMetric& metric, double value, Origin origin = {});

void add(results::SampleResult& result, const metrics::StoredMetric& metric, double value, Origin origin = {});

void add_series(results::SampleResult& result, const metrics::StoredSeries& series, std::vector<float> values,
                Origin origin = {});

/// Adds repeats of one measurement as a series, and their median as the value; nothing when there are none.
void add_repeats(results::SampleResult& result, const metrics::StoredMetric& metric, std::span<const double> repeats,
                 Origin origin);

}  // namespace kvarena::evaluate
