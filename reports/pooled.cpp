#include "reports/pooled.h"

#include <fmt/format.h>

#include "reports/sections.h"
#include "reports/verdict.h"

namespace kvarena::reports {

Pool pool_of(const ExperimentData& data, const std::string& method, results::CellKind kind, const std::string& metric) {
  Pool pool;
  for (const std::string& workload : data.workloads()) {
    const CellData* cell = data.find(method, workload, kind);
    if (cell == nullptr || !cell->counts()) continue;
    const auto found = cell->values->find(metric);
    if (found == cell->values->end()) continue;
    const std::vector<double> more = finite(cell->numbers(metric));
    pool.values.insert(pool.values.end(), more.begin(), more.end());
    mark_origin(pool.marks, found->second);
  }
  return pool;
}

TableCell mean_of_pool(const Pool& pool, const MetricLook& look) {
  if (pool.values.empty()) return {};
  const metrics::MeanEstimate estimate = metrics::bootstrap_mean(pool.values, resampling_for(pool.values.size()));
  TableCell cell = pool.marks;
  cell.kind = CellKind::number;
  cell.value = look.scale * estimate.mean;
  if (pool.values.size() > 1) {
    cell.interval = metrics::Interval{look.scale * estimate.interval.low, look.scale * estimate.interval.high};
  }
  cell.detail = fmt::format("{} samples", estimate.samples);
  return cell;
}

}  // namespace kvarena::reports
