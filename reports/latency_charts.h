#pragma once
// Inside the reports folder: charts of times.

#include <vector>

#include "reports/chart.h"
#include "reports/experiment_data.h"

namespace kvarena::reports {

/// The time to the first token in its parts, a bar a method, of timing cells; measured.
[[nodiscard]] std::vector<Chart> first_token_charts(const ExperimentData& data);

/// Quality over the time of a token, and with `first_token` over the time to the first one: a point a method that was
/// timed and scored. No front joins them: times vary, and a front would make a result of noise.
[[nodiscard]] std::vector<Chart> quality_speed_charts(const ExperimentData& data, bool first_token);

/// How the times to first tokens of a load's requests are spread: a chart for each workload and point, a line a method;
/// measured.
[[nodiscard]] std::vector<Chart> latency_distribution_charts(const ExperimentData& data);

}  // namespace kvarena::reports
