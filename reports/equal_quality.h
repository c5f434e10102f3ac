#pragma once
// Ratios of times at one quality: what "2.2x faster at the same score" means.

#include <optional>
#include <span>
#include <string>

#include "reports/chart_specs.h"
#include "reports/table.h"

namespace kvarena::reports {

/// The least x at which a series reaches the quality y, linear between its points that no other of it beats in both;
/// nothing where no two of these lie around y and none is at it. Smaller x and larger y are better.
[[nodiscard]] std::optional<double> x_at_quality(std::span<const ScatterPoint> points, const std::string& series,
                                                 double y);

/// Each point beside every other series at the point's quality: their x, and how many times the point's that is. `time`
/// is the title of x. Nothing where no series reaches another's quality.
[[nodiscard]] std::optional<Table> equal_quality_table(const std::string& id, const std::string& time,
                                                       const std::string& quality,
                                                       std::span<const ScatterPoint> points);

}  // namespace kvarena::reports
