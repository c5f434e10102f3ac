#pragma once
// Acceptance curves of methods that drafted in a run.

#include <filesystem>

#include "harness/cost_model/acceptance_file.h"

namespace kvarena::cli {

/// Curves of a file: JSON as acceptance_file.h describes, or a results database of one experiment and model, whose
/// verified rounds of equal drafters are pooled over draft lengths, workloads and samples. A curve's share kept is what
/// the drafter's cache measured as a method of its own in that experiment, else its setting `keep`. Throws UserError
/// where a database holds no rounds of a drafter whose share is known.
[[nodiscard]] cost_model::AcceptanceFile acceptance_of(const std::filesystem::path& file);

}  // namespace kvarena::cli
