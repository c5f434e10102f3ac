#pragma once
// The experiment loop: evaluates the missing samples of a plan one by one and commits each as it comes.

#include <atomic>
#include <string>
#include <string_view>

#include "harness/core/event_log.h"
#include "harness/core/progress.h"
#include "harness/experiment/evaluator.h"
#include "harness/experiment/plan.h"
#include "harness/results/results_store.h"

namespace kvarena::experiment {

struct RunOptions {
  bool retry_failed = false;  // give cells that failed in an earlier run another chance
  EventLog* log = nullptr;    // gets the run's events; null for nobody
};

struct RunSummary {
  std::string run_id;
  int64_t evaluated = 0;     // (cell, sample) pairs of this run
  int64_t already_done = 0;  // found in the database
  int64_t failed_cells = 0;  // in force after this run, also those of earlier runs
  int64_t inactive_cells = 0;
  int64_t missing_cells = 0;  // whose methods' weights are not there
  bool interrupted = false;
};

/// Evaluates the samples of `plan` that the database lacks. Each sample's results are committed together before the
/// next so a kill at any moment loses at most the sample in work, and running again ends with the same content. A
/// method that fails costs its own cell. When `stop` turns true the loop ends after the sample in work. Throws
/// UserError only when the database cannot be written; the run is then marked failed where that is still possible.
RunSummary run_plan(const Plan& plan, Evaluator& evaluator, results::ResultsStore& results, Progress& progress,
                    const std::atomic<bool>& stop, const RunOptions& options = {});

/// While it lives, the first SIGINT or SIGTERM turns flag() true and the second ends the process as if not caught.
/// At most one at a time.
class InterruptGuard {
 public:
  /// `doing`: what the first signal says on standard error, a text that lasts as long as the program.
  explicit InterruptGuard(std::string_view doing = "stopping after the sample in work; once more stops at once");
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  [[nodiscard]] static const std::atomic<bool>& flag();
};

}  // namespace kvarena::experiment
