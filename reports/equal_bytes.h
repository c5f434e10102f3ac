#pragma once
// Ranks all methods of an experiment at equal resident bytes: each by its setting nearest to a budget from below.

#include "reports/document.h"
#include "reports/experiment_data.h"

namespace kvarena::reports {

/// A leaderboard of one model, for each way in which questions were asked. Of each method (and of what it acts over, as
/// a codec over a dropping method) the setting with the most resident bytes, of those that hold at most `share` of full
/// KV's; by KL from full KV, least first, with the ranks that draws of the samples give. Methods without such a setting
/// are listed with the least that they hold. Then how far the orders of protocols and workloads agree. Throws UserError
/// when the experiment holds several models, or no method that keeps within the budget.
[[nodiscard]] Document equal_bytes_report(const ExperimentData& data, double share);

}  // namespace kvarena::reports
