#pragma once
// Inside the reports folder: charts of times.

#include <vector>

#include "reports/chart.h"
#include "reports/experiment_data.h"

namespace kvarena::reports {

/// The time to the first token in its parts, a bar a method, of timing cells; measured.
[[nodiscard]] std::vector<Chart> first_token_charts(const ExperimentData& data);

/// Quality over the time to the first token, and over the time of a token after it: a point a method that was timed and
/// scored, with the front that no other beats in both.
[[nodiscard]] std::vector<Chart> quality_speed_charts(const ExperimentData& data);

/// How the times to first tokens of a load's requests are spread: a chart for each workload and point, a line a method;
/// measured.
[[nodiscard]] std::vector<Chart> latency_distribution_charts(const ExperimentData& data);

}  // namespace kvarena::reports
