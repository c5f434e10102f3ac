#pragma once
// Inside the reports folder: the number of ours that a printed one is held against, in kind.

#include <optional>
#include <string>

#include "metrics/statistics.h"
#include "reports/experiment_data.h"

namespace kvarena::reports {

/// A number of ours in the printed unit, or why there is none.
struct Ours {
  double value = 0;
  std::optional<metrics::Interval> interval;
  size_t samples = 0;
  const CellData* cell = nullptr;
  const results::ValueColumn* values = nullptr;
  std::string missing;
};

/// Ours of the printed workload, or over all workloads: the least of them where that is printed, a share of all their
/// samples, their means on both sides of a ratio between settings, else their mean. The cell is one of project-made
/// samples where there is any.
[[nodiscard]] Ours ours_of(const ExperimentData& data, const results::PublishedValue& printed);

}  // namespace kvarena::reports
