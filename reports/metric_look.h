#pragma once
// How a metric is printed and which way it is good, as the database says.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "metrics/stored_metrics.h"
#include "reports/experiment_data.h"
#include "reports/table.h"

namespace kvarena::reports {

struct MetricLook {
  std::string title;
  std::string unit;  // as printed: "%", "ms"; empty for none
  double scale = 1;  // printed is stored times this
  Better better = Better::neither;
  NumberFormat format;

  bool operator==(const MetricLook&) const = default;
};

/// From the metric's definition in the database. A metric that nobody defined keeps its stored unit, and neither
/// direction is good.
[[nodiscard]] MetricLook look_of(const ExperimentData& data, const std::string& metric);

/// A column of a table whose rows have values of one metric.
struct MetricColumn {
  metrics::StoredMetric metric;
  std::optional<NumberFormat> format = {};  // instead of the metric's own
  const char* title = nullptr;              // instead of the metric's own
  const char* group = "";
  bool modelled = false;  // of the modelled clock
};

/// Adds a column for each metric, in its unit and direction; returns how their values look.
std::vector<MetricLook> add_metric_columns(const ExperimentData& data, std::span<const MetricColumn> columns,
                                           Table& table);

/// The metric that tables show for a workload: the first of its card.
[[nodiscard]] std::string primary_metric(const ExperimentData& data, const std::string& workload);

/// A change of units: `factor` times the value, and `shift` more.
struct UnitChange {
  double factor = 1;
  double shift = 0;

  [[nodiscard]] double operator()(double value) const { return factor * value + shift; }
};

/// The change of a stored value to `unit`: percent of a fraction, marks of a fraction, ms of s, bits of nats, GiB of
/// bytes. Nothing when the two units measure different things or one is not known and they are not equal.
[[nodiscard]] std::optional<UnitChange> unit_change(const std::string& stored, const std::string& unit);

}  // namespace kvarena::reports
