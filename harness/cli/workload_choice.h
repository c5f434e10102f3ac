#pragma once
// Choice of workloads by name or family on a command line.

#include <string>
#include <vector>

#include "datasets/workload.h"

namespace kvarena::cli {

/// Workloads of these names and families, each once, in the order of names; all where none is given. Throws UserError
/// with the nearest name.
[[nodiscard]] std::vector<const datasets::WorkloadEntry*> chosen_workloads(const std::vector<std::string>& names);

}  // namespace kvarena::cli
