#pragma once
// One experiment as reports need it: cells with their values, series and cards, read once.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/results/invented_data.h"
#include "harness/results/records.h"
#include "harness/results/results_reader.h"
#include "reports/shared.h"

namespace kvarena::reports {

/// A cell with everything that was measured in it.
struct CellData {
  results::CellRow row;
  /// By metric, samples by index. Modelled values stand under modelled(metric), so that no table mixes clocks.
  Shared<std::map<std::string, results::ValueColumn>> values;
  Shared<std::map<std::string, std::vector<results::SeriesRow>>> series;  // named in the same way
  std::vector<results::EventRow> events;                                  // of cells of kind serving
  Shared<results::ValueColumn> prompt_lengths;                            // tokens of each sample's whole prompt
  Shared<std::map<std::string, std::string>> prompts;                     // hash of each sample's prompt
  int64_t contexts = 0;  // that samples ask about, of which values are; 0: each sample is its own
  /// Hash of each sample's predicted text; nothing unless read_run() read it.
  std::optional<std::map<std::string, std::string>> answers;
  std::vector<std::pair<std::string, std::string>> card;  // protocol, name and value; judges of marks too
  std::map<std::string, int64_t> unjudged;                // answers that wait for a judge, by metric

  /// False for cells that failed or never acted: what they hold is no result and enters no table or chart.
  [[nodiscard]] bool counts() const;
  /// Whether methods saw the question ("seen", "unseen"); empty on cards that do not say.
  [[nodiscard]] std::string question() const;
  /// The values of a metric in sample order; empty when there are none.
  [[nodiscard]] std::vector<double> numbers(const std::string& metric) const;
};

/// "<metric> (modelled)": the name of a metric's values on a virtual clock.
[[nodiscard]] std::string modelled(const std::string& metric);

/// The entries in which two cards differ, "dtype: bf16 / f32", but for the method's own.
[[nodiscard]] std::string card_differences(const CellData& a, const CellData& b);

struct ExperimentData {
  results::ExperimentRecord experiment;
  std::vector<results::RunRecord> runs;
  std::vector<results::RunInput> inputs;                         // read last, of all runs
  std::vector<results::InventedData> invented;                   // those that this project made up
  std::map<std::string, results::MetricDefinition> definitions;  // by metric
  std::vector<results::JudgeRecord> judges;                      // whose marks there are, by metric
  std::vector<CellData> cells;                                   // in force, by plan position

  /// Labels in the order of the plan, each once.
  [[nodiscard]] std::vector<std::string> models() const;
  [[nodiscard]] std::vector<std::string> workloads() const;
  [[nodiscard]] std::vector<std::string> methods() const;
  /// This experiment with the wanted cells alone.
  [[nodiscard]] ExperimentData of_cells(const std::function<bool(const CellData& cell)>& wanted) const;
  /// This experiment with the cells of one model alone: labels of methods and workloads are unique only there.
  /// Published values of models that were not run stay beside each.
  [[nodiscard]] ExperimentData of_model(const std::string& model) const;
  /// This experiment with the cells of some methods alone.
  [[nodiscard]] ExperimentData of_methods(const std::vector<std::string>& methods) const;
  /// CellData::question() of the cells, each once, in the order of the plan; at least one entry.
  [[nodiscard]] std::vector<std::string> questions() const;
  /// This experiment with the cells of one of these protocols alone: numbers of different ones are not compared.
  [[nodiscard]] ExperimentData of_question(const std::string& question) const;
  /// This experiment with another baseline: methods are then compared with that one. Throws UserError for an unknown
  /// label.
  [[nodiscard]] ExperimentData with_baseline(const std::string& method) const;
  /// The cell of a method, workload and kind, or null; of the first model when there are several.
  [[nodiscard]] const CellData* find(const std::string& method, const std::string& workload,
                                     results::CellKind kind) const;
  /// Calls `use` with the experiment divided where requests have a length of their own, for no mean over lengths says
  /// anything: the cells of the others under "", then those of each such workload under its label.
  void for_request_lengths(const std::function<void(const std::string& length, const ExperimentData& part)>& use) const;
  /// The label of the baseline method, empty when there is none.
  [[nodiscard]] std::string baseline() const;
};

/// Ending of the label of project-made samples, in every table, chart and file.
inline constexpr const char* kInventedLabel = " (project-made)";

/// Reads one experiment; workloads of project-made samples get a label that says so. With an empty name the only one of
/// the database. `published` stands in place of the printed numbers that the run's config had. Throws UserError naming
/// the experiments there are when the name fits none, or several are there and none was named.
[[nodiscard]] ExperimentData read_experiment(
    const results::ResultsReader& reader, const std::string& name,
    const std::optional<std::vector<results::PublishedValue>>& published = std::nullopt);

/// Reads one experiment with hashes of its answers and without series and events, to lay it beside another run.
[[nodiscard]] ExperimentData read_run(const results::ResultsReader& reader, const std::string& name);

}  // namespace kvarena::reports
