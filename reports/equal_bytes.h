#pragma once
// Ranks all methods of an experiment at equal resident bytes: each by its setting nearest to a budget from below.

#include <vector>

#include "reports/document.h"
#include "reports/experiment_data.h"

namespace kvarena::reports {

/// Leaderboards for each model, each budget of `shares` and each way in which questions were asked. Of each method (and
/// of what it acts over, as a codec over a dropping method) the setting with the most resident bytes, of those that
/// hold at most a share of full KV's and more than the next smaller one; by KL from full KV, least first, with the
/// ranks that draws of the samples give. Methods that hold more in every setting are listed with the least that they
/// hold. Then how far the orders of models, budgets, protocols and workloads agree. Throws UserError when no method
/// keeps within a budget.
[[nodiscard]] Document equal_bytes_report(const ExperimentData& data, const std::vector<double>& shares);

}  // namespace kvarena::reports
