#include "reports/serving_points.h"

#include <cmath>

#include "metrics/stored_metrics.h"

namespace kvarena::reports {

double value_of(const CellData& cell, const std::string& metric, const std::string& sample) {
  const auto found = cell.values.find(metric);
  if (found == cell.values.end()) return NAN;
  for (const results::ValueRow& row : found->second.rows) {
    if (row.sample_id == sample) return row.value;
  }
  return NAN;
}

std::vector<float> series_of(const CellData& cell, const std::string& name, const std::string& sample) {
  const auto found = cell.series.find(name);
  if (found == cell.series.end()) return {};
  for (const results::SeriesRow& row : found->second) {
    if (row.sample_id == sample) return row.series.values;
  }
  return {};
}

std::vector<std::string> points_of(const CellData& cell) {
  std::vector<std::string> points;
  const auto found = cell.values.find(metrics::kServedScore.name);  // every point has one
  if (found == cell.values.end()) return points;
  for (const results::ValueRow& row : found->second.rows) points.push_back(row.sample_id);
  return points;
}

}  // namespace kvarena::reports
