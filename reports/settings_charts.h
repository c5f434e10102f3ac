#pragma once
// Charts along a method's numeric settings.

#include <vector>

#include "reports/chart.h"
#include "reports/experiment_data.h"

namespace kvarena::reports {

/// Accepted tokens a round and, where decoding was timed beside the baseline, the speed-up over it, by draft length: a
/// line for each method that ran at several lengths and is the same in every other setting. Nothing when there is none.
[[nodiscard]] std::vector<Chart> drafting_charts(const ExperimentData& data);

/// The primary metric over two settings: a heat map a workload, for each method of which exactly two numeric settings
/// vary, and over a whole grid. Nothing when there is none.
[[nodiscard]] std::vector<Chart> settings_grids(const ExperimentData& data);

}  // namespace kvarena::reports
