#pragma once
// The evaluator of real models, and the catalog that plans are made from.

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/engine/stored/prefill_folder.h"
#include "harness/evaluate/evaluated_method.h"
#include "harness/evaluate/file_hashes.h"
#include "harness/evaluate/loaded_model.h"
#include "harness/evaluate/method_files.h"
#include "harness/evaluate/quality.h"
#include "harness/evaluate/sample_cursor.h"
#include "harness/evaluate/served_cells.h"
#include "harness/experiment/evaluator.h"
#include "harness/experiment/plan.h"

namespace kvarena::evaluate {

struct StoredSet;

/// Locations of models and data.
struct Paths {
  std::filesystem::path home;      // cache folder: models live in models/
  std::filesystem::path data_dir;  // official data files; empty = $KVARENA_DATA or the project's own samples
  std::filesystem::path hardware;  // machines for modelled clocks, one file each
};

/// Definitions of all metrics and of the values that they store.
[[nodiscard]] std::vector<results::MetricDefinition> metric_definitions();

/// Opens models and workloads for both planning and evaluating. One model's weights are in memory at a time.
class ModelEvaluator final : public experiment::Evaluator, public experiment::Catalog {
 public:
  /// `config` must outlive it.
  ModelEvaluator(const experiment::ExperimentConfig& config, Paths paths);

  experiment::WorkloadSamples samples(const experiment::ModelEntry& model, const experiment::ComponentEntry& workload,
                                      results::CellKind kind, int64_t most) override;
  experiment::ModelSize model_size(const experiment::ModelEntry& model) override;
  /// The official file and its hash; the first sample's when samples are generated or come with the source.
  results::RunInput data_input(const experiment::ModelEntry& model,
                               const experiment::ComponentEntry& workload) override;
  std::vector<results::RunInput> method_inputs(const experiment::ModelEntry& model,
                                               const experiment::ComponentEntry& method) override;
  std::string missing_weights(const experiment::ModelEntry& model, const experiment::ComponentEntry& method) override;
  std::string protocol_card(const experiment::ModelEntry& model, const experiment::ComponentEntry& workload,
                            const experiment::ComponentEntry& method, results::CellKind kind) override;

  std::vector<results::RunInput> inputs(const experiment::ModelEntry& model) override;
  void begin_model(const experiment::ModelEntry& model, const experiment::EngineSettings& engine) override;
  void end_model(const experiment::ModelEntry& model) override;
  [[nodiscard]] std::vector<results::MetricDefinition> metric_definitions() const override {
    return evaluate::metric_definitions();
  }
  std::vector<experiment::SampleOutcome> evaluate(const experiment::EvalTask& task) override;
  std::vector<results::MetricValue> cell_values(const experiment::PlannedCell& cell,
                                                const results::ResultsReader& results) override;

 private:
  LoadedModel& loaded(const experiment::ModelEntry& model);
  /// The workload's samples as cells of this kind have them; what all kinds share is that of kind quality.
  SampleCursor& cursor(const experiment::ModelEntry& model, const experiment::ComponentEntry& workload,
                       results::CellKind kind = results::CellKind::quality);
  /// Data files of the metrics that score the workload.
  std::vector<results::RunInput> metric_inputs(const experiment::ModelEntry& model,
                                               const experiment::ComponentEntry& workload);
  /// How the workload's questions are asked: as its entry says, else unseen where its first sample says where its
  /// question starts, seen where not. Throws UserError where the entry asks for what the experiment cannot do.
  experiment::Question question_of(const experiment::ModelEntry& model, const experiment::ComponentEntry& workload);
  /// Weights of the method for the model.
  const std::vector<MethodFile>& files_of(const experiment::ModelEntry& model,
                                          const experiment::ComponentEntry& method);
  /// The hash of the model's files together.
  std::string model_hash(const experiment::ModelEntry& model);
  /// Where prompts of the model that were read are found; null where none are kept.
  const PrefillFolder* prefills(const experiment::ModelEntry& model);

  /// Methods of the cells that were asked last, and what they were asked about, for the next question or point.
  struct OpenContext {
    std::string of;  // what is shared and all that its cells depend on; empty when it is one sample's alone
    std::vector<EvaluatedMethod> methods;
    OpenPrompt prompt;                        // of one context with several questions
    std::shared_ptr<const StoredSet> stored;  // of stored contexts
  };

  const experiment::ExperimentConfig& config_;
  int threads_;  // that OpenMP has where nothing is said
  std::shared_ptr<const storage::Hierarchy> machine_;
  Paths paths_;
  FileHashes hashes_;
  std::map<std::string, std::unique_ptr<LoadedModel>> models_;           // by label
  std::map<std::string, std::unique_ptr<SampleCursor>> cursors_;         // by model, workload label and kind
  std::map<std::string, results::RunInput> data_inputs_;                 // by model and workload label
  std::map<std::string, experiment::Question> questions_;                // in the same way
  std::map<std::string, std::vector<results::RunInput>> method_inputs_;  // by model and method label
  std::map<std::string, std::vector<MethodFile>> method_files_;          // in the same way
  std::map<std::string, std::unique_ptr<PrefillFolder>> prefills_;       // by label of the model
  OpenContext open_;                                                     // gone before the models
  std::map<std::string, ServedCells> served_;                            // by label of the model; likewise
};

/// Checks of a config's names and settings against the registries.
[[nodiscard]] experiment::Validators registry_validators();

}  // namespace kvarena::evaluate
