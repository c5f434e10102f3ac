#pragma once
// Inside the reports folder: charts of times.

#include <vector>

#include "reports/chart.h"
#include "reports/document.h"
#include "reports/experiment_data.h"

namespace kvarena::reports {

/// The time to the first token in its parts, a bar a method, of timing cells; measured.
[[nodiscard]] std::vector<Chart> first_token_charts(const ExperimentData& data);

/// Adds quality over the time of a token, and with `first_token` over the time to the first one: a point a method that
/// was timed and scored, and ratios of times at equal quality. No front joins the points: times vary, and a front would
/// make a result of noise.
void add_quality_speed(const ExperimentData& data, bool first_token, Section& section);

/// How the times to first tokens of a load's requests are spread: a chart for each workload and point, a line a method;
/// measured.
[[nodiscard]] std::vector<Chart> latency_distribution_charts(const ExperimentData& data);

}  // namespace kvarena::reports
