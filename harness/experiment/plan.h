#pragma once
// From a config to cells: which model answers which workload under which method, in an order and with ids that depend
// on the config alone.

#include <memory>
#include <string>
#include <vector>

#include "harness/experiment/config.h"
#include "harness/results/invented_data.h"
#include "harness/results/results_reader.h"

namespace kvarena::experiment {

/// A workload's samples for a model, and their size, from which it is guessed how long they take.
struct WorkloadSamples {
  std::vector<std::string> ids;  // in order, of those that fit the model's window
  int64_t left_out = 0;          // among and before these: beyond the window
  double prompt_tokens = 0;      // mean, from the characters of the text
  double most_prompt_tokens = 0;
  double answer_tokens = 0;  // at most
};

/// Bytes of a model in memory, from which it is guessed what a run takes.
struct ModelSize {
  double weight_bytes = 0;
  double entry_bytes = 0;  // of one token in the cache, all layers
};

/// The plan's view of models, workloads and methods.
class Catalog {
 public:
  virtual ~Catalog() = default;

  /// The workload's samples for cells of this model and kind: of its first `workload.limit` the first `most` that fit
  /// the window together with an answer. Deterministic.
  virtual WorkloadSamples samples(const ModelEntry& model, const ComponentEntry& workload, results::CellKind kind,
                                  int64_t most) = 0;
  virtual ModelSize model_size(const ModelEntry& model) = 0;
  /// The file or generator that the samples come from, as a run records it.
  virtual results::RunInput data_input(const ModelEntry& model, const ComponentEntry& workload) = 0;

  /// Files beside model and data that decide the method's numbers: fitted weights, a checkpoint that drafts.
  virtual std::vector<results::RunInput> method_inputs(const ModelEntry& /*model*/, const ComponentEntry& /*method*/) {
    return {};
  }

  /// The weights that a method needs and that are not there, with the command that brings them; "" = all are there.
  virtual std::string missing_weights(const ModelEntry& /*model*/, const ComponentEntry& /*method*/) { return ""; }

  /// Settings that change scores beside the method: template and its hash, stop tokens, truncation, dtype, metric
  /// versions, data hash, layers left dense. A flat JSON object as text; equal settings give equal cards. Cells with
  /// different cards are different cells.
  virtual std::string protocol_card(const ModelEntry& model, const ComponentEntry& workload,
                                    const ComponentEntry& method, results::CellKind kind) = 0;
};

struct PlannedCell {
  results::CellRecord record;
  const ModelEntry* model = nullptr;  // these point into the Plan's config
  const ComponentEntry* workload = nullptr;
  const ComponentEntry* method = nullptr;
  std::string missing = {};  // Catalog::missing_weights()
};

/// One part of `count` equal ones that are run side by side, each into a database of its own, and merged.
struct Shard {
  int64_t index = 0;
  int64_t count = 1;
};

/// "2/8": the third of eight. Throws UserError naming `place` when it is no part.
[[nodiscard]] Shard parse_shard(const std::string& text, const std::string& place);

/// The cells of one model, workload and kind: they share samples and, for quality, the prefill of each.
struct CellGroup {
  const ModelEntry* model = nullptr;
  const ComponentEntry* workload = nullptr;
  results::CellKind kind = results::CellKind::quality;
  std::vector<std::string> sample_ids;  // for kind serving: the points of its load
  int64_t left_out = 0;                 // samples beyond the model's window
  int64_t requests = 0;                 // for kind serving: samples of the workload that each point takes
  results::RunInput data;               // what the samples come from
  std::vector<PlannedCell> cells;       // in the order of the config's methods
  std::vector<bool> asked;              // for each sample: whether this shard evaluates it
  double cost = 1;                      // expected time of one sample of one cell, in steps of decoding
  double weight_bytes = 0;              // that a step of decoding reads, beside caches
  double bytes = 0;                     // expected memory of a sample under all cells

  [[nodiscard]] int64_t asked_samples() const;
};

/// Groups in the order models, then workloads, then quality before noise floor before timing before serving.
struct Plan {
  std::unique_ptr<const ExperimentConfig> config;
  std::vector<CellGroup> groups;

  [[nodiscard]] int64_t evaluations() const;  // samples that are asked, times cells
  /// Workloads whose samples this project made up, because the benchmark's files are not there.
  [[nodiscard]] std::vector<results::InventedData> invented() const;
};

/// Shards share the cells and take turns with samples; of kinds timing and serving they take turns with groups, so that
/// times that are compared come from one machine and Evaluator::cell_values finds the whole cell.
[[nodiscard]] Plan make_plan(ExperimentConfig config, Catalog& catalog, Shard shard = {});

/// Samples that the cell lacks and this shard is to evaluate. Null `done`: nothing is there.
[[nodiscard]] int64_t samples_left(const CellGroup& group, const PlannedCell& cell, const results::ResultsReader* done);

/// Text of `--dry-run`: every cell with its samples and, when `done` is given, how much of it is in the database.
/// `use` says what the rest will take (expected_use.h).
[[nodiscard]] std::string describe_plan(const Plan& plan, const results::ResultsReader* done,
                                        const std::string& use = "");

}  // namespace kvarena::experiment
