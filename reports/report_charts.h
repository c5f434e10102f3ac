#pragma once
// The charts of an experiment's report.

#include <optional>
#include <string>
#include <vector>

#include "metrics/stored_metrics.h"
#include "reports/chart.h"
#include "reports/experiment_data.h"

namespace kvarena::reports {

/// Mean KL by step, and summed up to each step, a line a method; nothing when no cell has the series.
[[nodiscard]] std::vector<Chart> kl_charts(const ExperimentData& data);

/// Mean bytes of each tier by pass, a line a method and tier; nothing when no method uses a tier behind the device.
[[nodiscard]] std::vector<Chart> tier_charts(const ExperimentData& data);

/// A series that holds a number a layer.
struct LayerSeries {
  metrics::StoredSeries series;
  std::string id;  // the chart's
  std::string title;
  std::string axis;
};
/// Its means over samples, a line a method that is anywhere above 0; nothing when there is none.
[[nodiscard]] std::optional<Chart> layer_chart(const ExperimentData& data, const LayerSeries& what);

/// Mean quality over workloads against resident bytes as a share of full KV, with the Pareto front.
[[nodiscard]] std::vector<Chart> trade_off_charts(const ExperimentData& data);

}  // namespace kvarena::reports
