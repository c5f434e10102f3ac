#pragma once
// Values of a method over all its workloads.

#include <string>
#include <vector>

#include "metrics/stored_metrics.h"
#include "reports/metric_look.h"

namespace kvarena::reports {

/// Numbers of a metric, and marks of where they come from.
struct Pool {
  std::vector<double> values;
  TableCell marks;
};

/// Values of the cells of one method and kind that have numbers, over all workloads.
[[nodiscard]] Pool pool_of(const ExperimentData& data, const std::string& method, results::CellKind kind,
                           const std::string& metric);

/// The mean with its interval and marks; an empty cell of no values.
[[nodiscard]] TableCell mean_of_pool(const Pool& pool, const MetricLook& look);

}  // namespace kvarena::reports
