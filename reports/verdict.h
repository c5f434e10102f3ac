#pragma once
// Whether two cells differ: pairing by sample, the noise floor, and what a difference amounts to.

#include <optional>
#include <string>

#include "reports/experiment_data.h"
#include "reports/metric_look.h"
#include "reports/table.h"

namespace kvarena::reports {

/// Fewer resamples for more values (10,000 up to 200 values, at least 400): a report of 100,000 samples stays a matter
/// of seconds, and the interval's own error stays a small part of its width.
[[nodiscard]] metrics::ResamplingOptions resampling_for(size_t values);

/// The values that are numbers.
[[nodiscard]] std::vector<double> finite(std::vector<double> values);

/// The paired test of a metric over the samples both cells have; nothing when they share none. Throws UserError naming
/// cells and sample when the two were asked different prompts: their difference would be no effect of a method.
[[nodiscard]] std::optional<metrics::PairedDifference> pair_cells(const CellData& method, const CellData& baseline,
                                                                  const std::string& metric);

/// The mean over samples of |second run - first run| of the baseline, in stored units: no mean difference between the
/// two runs can be larger. Nothing when there was no second run.
struct NoiseFloor {
  double value = 0;
  int64_t samples = 0;
};
[[nodiscard]] std::optional<NoiseFloor> noise_floor(const ExperimentData& data, const std::string& workload,
                                                    const std::string& metric);

/// Within noise when the interval holds zero, when `p_value` (the test's own, or adjusted for the table it stands in)
/// is 0.05 or more, or when the difference is no larger than the noise floor. Printed in the look's unit.
[[nodiscard]] Difference verdict_of(const metrics::PairedDifference& paired, double p_value,
                                    const std::optional<NoiseFloor>& floor, const MetricLook& look);

}  // namespace kvarena::reports
