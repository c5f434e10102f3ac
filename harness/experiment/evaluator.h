#pragma once
// Interface between the experiment loop and whatever runs models.

#include <span>
#include <string>
#include <vector>

#include "harness/experiment/plan.h"
#include "harness/results/records.h"
#include "harness/results/results_reader.h"

namespace kvarena::experiment {

/// One sample and the cells that still miss it.
struct EvalTask {
  const ModelEntry& model;
  const ComponentEntry& workload;
  results::CellKind kind;
  std::string sample_id;
  int64_t sample_index = 0;  // place in Catalog::samples
  /// Cells to evaluate, at least one, of one model, workload and kind. A resumed run may ask for fewer than before.
  std::span<const PlannedCell* const> cells;
  /// Places of samples that the same cells are asked about next, for an evaluator that can begin them, or that holds
  /// what they share with this one.
  std::span<const int64_t> next = {};
};

/// Outcome of one cell's sample: a result, or the reason why there is none.
struct SampleOutcome {
  results::SampleResult result;  // cell_id, sample_id and sample_index are filled by the runner
  std::string failure;           // not empty: the method failed and its cell is given up; the first line says why
  std::string log;               // last lines of a process that the failure ended, or of a traceback
};

/// Evaluates samples with one model at a time. Called from one thread. Takes and returns values only, so that an
/// evaluator may live in another process.
class Evaluator {
 public:
  virtual ~Evaluator() = default;

  /// The files that decide a model's numbers, for the record. Called before begin_model, and needs no weights.
  virtual std::vector<results::RunInput> inputs(const ModelEntry& model) = 0;

  /// Called before the first sample of a model that has anything left to do. An exception of this or inputs() fails all
  /// cells of the model that are not finished, with its message as the reason.
  virtual void begin_model(const ModelEntry& model, const EngineSettings& engine) = 0;
  virtual void end_model(const ModelEntry& model) = 0;

  /// Definitions of the metrics that results may hold, for the record.
  [[nodiscard]] virtual std::vector<results::MetricDefinition> metric_definitions() const { return {}; }

  /// Returns one outcome for each of task.cells, in their order. A result must not depend on which other cells are
  /// asked for beside it, nor on samples evaluated before. Cells of kind timing have their own prefill, warm-up and
  /// repeats; kind noise_floor repeats a quality evaluation in chunks and batches of another shape; for kind serving a
  /// sample is a point of the load, with PlannedCell's "requests" samples of the workload of its own. After
  /// an exception each cell is asked for alone, and one that ends so alone has failed.
  virtual std::vector<SampleOutcome> evaluate(const EvalTask& task) = 0;

  /// Metrics of a whole cell once all its samples are there (corpus scores, fits). Called again after a kill, so it
  /// depends on what the reader shows alone.
  virtual std::vector<results::MetricValue> cell_values(const PlannedCell& cell,
                                                        const results::ResultsReader& results) = 0;
};

}  // namespace kvarena::experiment
