#pragma once
// The evaluator of the experiment loop when models live in worker processes.

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/experiment/evaluator.h"
#include "harness/experiment/workers/worker_process.h"

namespace kvarena::experiment {

struct WorkerSettings {
  std::vector<std::string> words;  // command line of a worker: program and arguments; it calls serve()
  nlohmann::json setup;            // passed by its serve() to `open`
  Limits limits;
  std::function<void(const std::string&)> on_line;  // lines that workers print, and ours about workers
  double patience_s = Patience().first;             // until a sample or a model that takes long is told by on_line
};

/// One worker at a time, which holds one model; it is made when first needed and again after it died.
class WorkerEvaluator final : public experiment::Evaluator {
 public:
  /// `here` answers, in this process, whatever needs no weights: inputs, metrics and their definitions.
  WorkerEvaluator(experiment::Evaluator& here, WorkerSettings settings);

  std::vector<results::RunInput> inputs(const experiment::ModelEntry& model) override { return here_->inputs(model); }
  void begin_model(const experiment::ModelEntry& model, const experiment::EngineSettings& engine) override;
  void end_model(const experiment::ModelEntry& model) override;
  [[nodiscard]] std::vector<results::MetricDefinition> metric_definitions() const override {
    return here_->metric_definitions();
  }
  /// Throws WorkerDied when the worker dies with several cells, for nobody knows of which. One that dies with one cell
  /// is that cell's failure.
  std::vector<experiment::SampleOutcome> evaluate(const experiment::EvalTask& task) override;
  std::vector<results::MetricValue> cell_values(const experiment::PlannedCell& cell,
                                                const results::ResultsReader& results) override {
    return here_->cell_values(cell, results);
  }

 private:
  /// Asks the worker, which is started when there is none, for the task's outcomes. Throws UserError with the worker's
  /// message when it answers with an error, WorkerDied when it does not answer.
  nlohmann::json ask(const experiment::EvalTask& task);
  void start();
  std::vector<experiment::SampleOutcome> evaluate_together(const experiment::EvalTask& task);
  /// Asks for the task's only cell, again while others kill the worker.
  experiment::SampleOutcome evaluate_alone(const experiment::EvalTask& task);

  experiment::Evaluator* here_;
  WorkerSettings settings_;
  std::string model_;          // label; "" = none begun
  double longest_sample_ = 0;  // of this model, seconds
  std::unique_ptr<WorkerProcess> worker_;
};

}  // namespace kvarena::experiment
