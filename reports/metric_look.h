#pragma once
// How a metric is printed and which way it is good, as the database says.

#include <optional>
#include <string>

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

/// The metric that tables show for a workload: the first of its card.
[[nodiscard]] std::string primary_metric(const ExperimentData& data, const std::string& workload);

/// What a stored value is multiplied with to be in `unit`: percent of a fraction, ms of s, bits of nats, GiB of bytes.
/// Nothing when the two units measure different things or one is not known and they are not equal.
[[nodiscard]] std::optional<double> unit_factor(const std::string& stored, const std::string& unit);

}  // namespace kvarena::reports
