#pragma once
// One experiment in several databases: how its scores went over time.

#include <string>
#include <vector>

#include "reports/document.h"
#include "reports/experiment_data.h"

namespace kvarena::reports {

/// A run of the experiment and what it is called in the page: "2026-11-02 main".
struct NamedRun {
  std::string name;
  ExperimentData data;
};

/// For each workload a table of methods by runs, in the order given, and a line a method. Changes since the run
/// before are those that compare() lists. Throws UserError when there are fewer than two runs, when no cell is in two
/// of them, or when prompts of a sample differ.
[[nodiscard]] Document history(const std::vector<NamedRun>& runs);

}  // namespace kvarena::reports
