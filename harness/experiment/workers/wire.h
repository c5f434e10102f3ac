#pragma once
// Inside the workers folder: messages between runner and worker, as JSON values.
//
//   {"ask": "start", "setup": ...}          -> {"ok": null}
//   {"ask": "begin_model", "model": label}  -> {"ok": null}
//   {"ask": "evaluate", "task": ...}        -> {"ok": [outcome, ...]}
//   anything that throws                    -> {"error": message}

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "harness/experiment/evaluator.h"

namespace kvarena::experiment {

[[nodiscard]] nlohmann::json task_json(const experiment::EvalTask& task);

/// A task as it arrives in a worker; its pointers lead to entries of the worker's own config.
struct ReceivedTask {
  const experiment::ModelEntry* model = nullptr;
  const experiment::ComponentEntry* workload = nullptr;
  results::CellKind kind = results::CellKind::quality;
  std::string sample_id;
  int64_t sample_index = 0;
  std::vector<experiment::PlannedCell> cells;
  std::vector<int64_t> next;
};
/// Throws UserError when `config` lacks what the task names, nlohmann's exceptions when `task` is none.
[[nodiscard]] ReceivedTask read_task(const nlohmann::json& task, const experiment::ExperimentConfig& config);

[[nodiscard]] nlohmann::json outcome_json(const experiment::SampleOutcome& outcome);
/// Throws nlohmann's exceptions when `value` is no outcome.
[[nodiscard]] experiment::SampleOutcome read_outcome(const nlohmann::json& value);

/// The model with this label. Throws UserError when there is none.
[[nodiscard]] const experiment::ModelEntry& model_labelled(const std::string& label,
                                                           const experiment::ExperimentConfig& config);

}  // namespace kvarena::experiment
