#pragma once
// Inside the reports folder: cells whose samples are points of a load.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "reports/chart_specs.h"
#include "reports/experiment_data.h"

namespace kvarena::reports {

/// Returns for each workload a chart of the lines that its cells give; a line of fewer than two points is left out, and
/// so is a chart without lines. `chart` takes its number from 1, the workload and the lines.
[[nodiscard]] std::vector<Chart> charts_by_workload(
    const ExperimentData& data, std::span<const CellData* const> cells,
    const std::function<LineSeries(const CellData&)>& line,
    const std::function<Chart(size_t, const std::string&, const std::vector<LineSeries>&)>& chart);

/// The value of a sample, NaN when there is none.
[[nodiscard]] double value_of(const CellData& cell, const std::string& metric, const std::string& sample);

/// The series of a sample, by request; empty when there is none.
[[nodiscard]] std::vector<float> series_of(const CellData& cell, const std::string& name, const std::string& sample);

/// The score under load that a serving cell's goodput asks for (serving.score_share); NaN where it tells none.
[[nodiscard]] double score_target(const results::CellRecord& cell);

/// Samples of a serving cell, in their order.
[[nodiscard]] std::vector<std::string> points_of(const CellData& cell);

}  // namespace kvarena::reports
