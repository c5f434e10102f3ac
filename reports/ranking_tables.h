#pragma once
// Tables of a ranking at equal bytes, and of all rankings of a model.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reports/document.h"
#include "reports/ranked_settings.h"

namespace kvarena::reports {

/// "12.5%".
[[nodiscard]] std::string percent_of(double share);

/// Ranked settings, best first, with bytes, distances and ranks, over all workloads and in each. `data` holds them and
/// the baseline on the samples that all of them have; `share`: of full KV's bytes, that none exceeds.
[[nodiscard]] Section ranking_section(const ExperimentData& data, const Chosen& chosen, double share);

/// Methods that are not ranked: what they hold at least, or why there is no number.
[[nodiscard]] std::optional<Section> beyond_section(const ExperimentData& data, const std::vector<Setting>& settings,
                                                    const Chosen& chosen);

/// A ranking as a column of the overview: "unseen" under "at most 30%".
struct OverviewColumn {
  std::string group, title;
  const std::vector<const Setting*>* ranked;  // best first
};

/// Distances of every method in every ranking of a model.
[[nodiscard]] Section overview_section(std::span<const OverviewColumn> columns);

}  // namespace kvarena::reports
