#pragma once
// Procedures that evaluate a task: one for each kind of cell, and for each shape that a config gives it.

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/evaluate/evaluated_method.h"
#include "harness/evaluate/loaded_model.h"
#include "harness/evaluate/sample_cursor.h"

namespace kvarena {
class PrefillFolder;
}

namespace kvarena::evaluate {

struct OpenPrompt;
class ServedCells;
struct StoredSet;

/// A task with its model, samples and methods at hand.
struct OpenTask {
  const experiment::ExperimentConfig& config;
  const experiment::EvalTask& task;
  LoadedModel& model;
  SampleCursor& samples;
  std::span<const EvaluatedMethod> methods;
  ServedCells& served;                       // of a model behind an endpoint
  OpenPrompt* context;                       // evaluate_quality()'s; null where samples have no context
  const PrefillFolder* prefills;             // likewise; null where none are kept
  std::shared_ptr<const StoredSet>& stored;  // contexts that the points of a workload ask about; null: not read yet
  experiment::Question question;             // protocol of the cells
  const std::filesystem::path& hardware;     // folder of the machines that modelled clocks describe
};

/// Returns one outcome for each method, in their order.
using CellProcedure = std::vector<experiment::SampleOutcome> (*)(const OpenTask& open);

[[nodiscard]] CellProcedure procedure_of(results::CellKind kind, const experiment::ExperimentConfig& config);

/// The config's engine, with answers as long as cells of this kind have them.
[[nodiscard]] experiment::EngineSettings engine_of(const experiment::ExperimentConfig& config,
                                                   const experiment::ComponentEntry& workload, results::CellKind kind);

/// Ids of the metrics that score a prediction: the workload's own, then those of the config. None that reads a judge's
/// words.
[[nodiscard]] std::vector<std::string> score_metrics(const datasets::WorkloadInfo& workload,
                                                     const experiment::ExperimentConfig& config);

/// Ids of the metrics for which a judge is asked, in the same order.
[[nodiscard]] std::vector<std::string> judge_metrics(const datasets::WorkloadInfo& workload,
                                                     const experiment::ExperimentConfig& config);

/// Whether the config lists the metric, beside the workloads' own.
[[nodiscard]] bool lists_metric(const experiment::ExperimentConfig& config, const std::string& metric);

}  // namespace kvarena::evaluate
