#pragma once
// Resident bytes of methods, and which of them hold about as many: only those may be compared for the best.

#include <map>
#include <string>

#include "reports/experiment_data.h"

namespace kvarena::reports {

/// Resident bytes as a share of full KV's, mean over all quality samples, by method label. Methods without numbers are
/// absent.
[[nodiscard]] std::map<std::string, double> byte_shares(const ExperimentData& data);

/// A number for each method but the baseline: equal where the shares lie within a seventh of the least of them.
[[nodiscard]] std::map<std::string, int> byte_classes(const ExperimentData& data);

}  // namespace kvarena::reports
