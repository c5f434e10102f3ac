#pragma once
// Inside the reports folder: the number of ours that a printed one is held against, in kind.

#include "reports/printed_values.h"

namespace kvarena::reports {

/// Ours of the printed workload, or over all workloads: the least of them where that is printed, a share of all their
/// samples, their means on both sides of a ratio between settings, else their mean. The cell is one of project-made
/// samples where there is any.
[[nodiscard]] Ours ours_of(const ExperimentData& data, const results::PublishedValue& printed);

}  // namespace kvarena::reports
