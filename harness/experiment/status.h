#pragma once
// Progress of an experiment, from its database alone: while a run writes to it, and after.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/results/invented_data.h"
#include "harness/results/results_reader.h"

namespace kvarena::experiment {

struct ExperimentStatus {
  std::string experiment;
  std::string run_id;                    // the last one
  results::RunState state{};             // state of the last run; a killed one still calls itself running
  std::map<std::string, int64_t> cells;  // how many are in each state
  int64_t planned = 0;                   // evaluations: samples times cells
  int64_t done = 0;
  int64_t given_up = 0;                         // evaluations that failed cells lack
  int64_t by_this_run = 0;                      // those of `done` that the last run evaluated
  double run_s = 0;                             // from the run's start to `now`, or to its end
  std::vector<results::CellRow> failures;       // cells that failed
  std::vector<results::InventedData> invented;  // workloads of project-made samples

  [[nodiscard]] int64_t left() const { return planned - done - given_up; }
  /// Seconds at the speed of the last run; below 0 before it can be known.
  [[nodiscard]] double seconds_left() const;
};

/// Status of every experiment in the database, by name. `now`: UTC, seconds since 1970.
[[nodiscard]] std::vector<ExperimentStatus> experiment_status(const results::ResultsReader& results, int64_t now);

}  // namespace kvarena::experiment
