#include "reports/serving_points.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "metrics/stored_metrics.h"

namespace kvarena::reports {

std::vector<Chart> charts_by_workload(
    const ExperimentData& data, std::span<const CellData* const> cells,
    const std::function<LineSeries(const CellData&)>& line,
    const std::function<Chart(size_t, const std::string&, const std::vector<LineSeries>&)>& chart) {
  std::vector<Chart> charts;
  for (const std::string& workload : data.workloads()) {
    std::vector<LineSeries> lines;
    for (const CellData* cell : cells) {
      if (cell->row.cell.workload != workload) continue;
      LineSeries one = line(*cell);
      if (one.points.size() > 1) lines.push_back(std::move(one));
    }
    if (!lines.empty()) charts.push_back(chart(charts.size() + 1, workload, lines));
  }
  return charts;
}

double value_of(const CellData& cell, const std::string& metric, const std::string& sample) {
  const auto found = cell.values->find(metric);
  if (found == cell.values->end()) return NAN;
  for (const results::ValueRow& row : found->second.rows) {
    if (row.sample_id == sample) return row.value;
  }
  return NAN;
}

std::vector<float> series_of(const CellData& cell, const std::string& name, const std::string& sample) {
  const auto found = cell.series->find(name);
  if (found == cell.series->end()) return {};
  for (const results::SeriesRow& row : found->second) {
    if (row.sample_id == sample) return row.series.values;
  }
  return {};
}

double score_target(const results::CellRecord& cell) {
  const auto engine = nlohmann::json::parse(cell.engine_json, nullptr, /*allow_exceptions=*/false);
  return engine.is_object() ? engine.value("score_share", NAN) : NAN;
}

std::vector<std::string> points_of(const CellData& cell) {
  std::vector<std::string> points;
  const auto found = cell.values->find(metrics::kServedScore.name);  // every point has one
  if (found == cell.values->end()) return points;
  for (const results::ValueRow& row : found->second.rows) points.push_back(row.sample_id);
  return points;
}

}  // namespace kvarena::reports
