#pragma once
// Samples that this project made up in the place of a benchmark's: found among a run's inputs, and named as such.

#include <span>
#include <string>
#include <vector>

#include "harness/results/records.h"

namespace kvarena::results {

struct InventedData {
  std::string model;       // "" = all
  std::string workload;    // label
  std::string instead_of;  // "LongBench qasper"; the workload's label where the run did not say

  bool operator==(const InventedData&) const = default;
};

/// Workloads of project-made samples, each once a model.
[[nodiscard]] std::vector<InventedData> invented_data(std::span<const RunInput> inputs);

/// "project-made sample, not LongBench": of all of them together, by what their benchmarks' names have in common; ""
/// for none.
[[nodiscard]] std::string invented_mark(std::span<const InventedData> data);

}  // namespace kvarena::results
