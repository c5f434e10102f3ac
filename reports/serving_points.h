#pragma once
// Inside the reports folder: cells whose samples are points of a load, and tables with a row a point.

#include <optional>
#include <string>
#include <vector>

#include "metrics/stored_metrics.h"
#include "reports/experiment_data.h"
#include "reports/number.h"

namespace kvarena::reports {

/// A column of such a table.
struct PointColumn {
  metrics::StoredMetric metric;
  const char* title;
  const char* group;
  std::optional<NumberFormat> format;  // the metric's own when there is none
};

/// The value of a sample, NaN when there is none.
[[nodiscard]] double value_of(const CellData& cell, const std::string& metric, const std::string& sample);

/// The series of a sample, by request; empty when there is none.
[[nodiscard]] std::vector<float> series_of(const CellData& cell, const std::string& name, const std::string& sample);

/// Samples of a serving cell, in their order.
[[nodiscard]] std::vector<std::string> points_of(const CellData& cell);

}  // namespace kvarena::reports
