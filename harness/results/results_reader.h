#pragma once
// Reading a results database, for reports, comparisons and resuming. Any number of readers may look while a run writes.

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/results/records.h"

namespace SQLite {
class Database;
}

namespace kvarena::results {

/// A cell as the database knows it.
struct CellRow {
  CellRecord cell;
  CellState state = CellState::pending;
  std::string reason;
  std::string failure_log;  // the last lines of a process that the method ended, or of a traceback
  bool superseded = false;
  double wall_s = 0;
  int64_t done_samples = 0;
  int64_t active_samples = 0;
  std::vector<std::pair<std::string, int64_t>> peak_bytes;  // by tier name
};

/// One value of one sample, for pairing and resampling.
struct ValueRow {
  std::string sample_id;
  int64_t sample_index = 0;
  double value = 0;  // NaN = not defined
  bool active = true;
};

/// All values of one metric in one cell, by sample index.
struct ValueColumn {
  std::string metric;
  std::string unit;
  Clock clock = Clock::none;
  Storage storage = Storage::real;  // the least real among the values
  std::vector<ValueRow> rows;
};

/// A metric that some cell has.
struct MetricInfo {
  std::string metric;
  std::string unit;
  Clock clock = Clock::none;
  bool per_sample = true;  // false: a value of the whole cell
};

struct SeriesRow {
  std::string sample_id;
  Series series;
};

struct EventRow {
  std::string sample_id;
  Event event;
};

/// One connection, for one thread at a time. Every list has a fixed order: experiments and runs by name and start,
/// cells by plan position, samples by index, names by alphabet.
class ResultsReader {
 public:
  /// Opens read-only. Throws UserError naming the file when it is absent, of another program, damaged or of a newer
  /// schema. A database in a folder that cannot be written is read too when no run has it open.
  explicit ResultsReader(const std::filesystem::path& path);
  ~ResultsReader();
  ResultsReader(ResultsReader&&) noexcept;
  ResultsReader& operator=(ResultsReader&&) noexcept;

  [[nodiscard]] std::vector<ExperimentRecord> experiments() const;
  [[nodiscard]] std::vector<RunRecord> runs(const std::string& experiment) const;
  /// Samples that a run evaluated.
  [[nodiscard]] int64_t evaluated_by(const std::string& run_id) const;
  [[nodiscard]] std::vector<RunInput> inputs(const std::string& run_id) const;
  /// Inputs of all runs of an experiment; of those of one kind, model and name the one that was read last.
  [[nodiscard]] std::vector<RunInput> last_inputs(const std::string& experiment) const;
  /// Cells in force; with `superseded` also those that an older config asked for.
  [[nodiscard]] std::vector<CellRow> cells(const std::string& experiment, bool superseded = false) const;
  [[nodiscard]] std::optional<CellRow> cell(const std::string& cell_id) const;

  /// Samples of a cell, without values, series, events and peak bytes, which have their own functions.
  [[nodiscard]] std::vector<SampleResult> samples(const std::string& cell_id) const;
  [[nodiscard]] std::set<std::string> done_samples(const std::string& cell_id) const;
  /// Definitions of metrics, by name; metrics that were never defined are absent.
  [[nodiscard]] std::vector<MetricDefinition> metric_definitions() const;
  /// The metrics that any cell in force of the experiment has.
  [[nodiscard]] std::vector<MetricInfo> metrics(const std::string& experiment) const;
  [[nodiscard]] std::vector<ValueRow> values(const std::string& cell_id, const std::string& metric,
                                             Clock clock = Clock::none) const;
  /// Hash of each sample's prompt, by sample id: values of unequal prompts are no pair.
  [[nodiscard]] std::map<std::string, std::string> prompts(const std::string& cell_id) const;
  /// The context that a sample asks about, by sample id; a sample that has its own is absent.
  [[nodiscard]] std::map<std::string, std::string> contexts(const std::string& cell_id) const;
  /// Tokens of each sample's prompt, with those that were cut to fit.
  [[nodiscard]] ValueColumn prompt_lengths(const std::string& cell_id) const;
  /// Predicted text of each sample, by sample id.
  [[nodiscard]] std::map<std::string, std::string> predictions(const std::string& cell_id) const;
  /// Every metric of a cell at once.
  [[nodiscard]] std::vector<ValueColumn> columns(const std::string& cell_id) const;
  [[nodiscard]] std::vector<MetricValue> sample_values(const std::string& cell_id, const std::string& sample_id) const;
  [[nodiscard]] std::vector<MetricValue> cell_values(const std::string& cell_id) const;
  /// (name, clock) of the series that a cell has.
  [[nodiscard]] std::vector<std::pair<std::string, Clock>> series_names(const std::string& cell_id) const;
  [[nodiscard]] std::vector<SeriesRow> series(const std::string& cell_id, const std::string& name,
                                              Clock clock = Clock::none) const;
  [[nodiscard]] std::vector<EventRow> events(const std::string& cell_id) const;
  /// Answers of an experiment that wait for a judge's marks, in the order of cells, samples and metrics.
  [[nodiscard]] std::vector<JudgeRequest> unjudged(const std::string& experiment) const;
  /// Judges of an experiment's marks, by metric.
  [[nodiscard]] std::vector<JudgeRecord> judges(const std::string& experiment) const;

  /// SHA-256 over everything that a repetition of the same experiments must reproduce: no run ids, no times, no host,
  /// no values or series of the measured clock. Equal for a run that was killed and resumed and one that was not.
  [[nodiscard]] std::string content_digest() const;

 private:
  friend class ResultsStore;
  explicit ResultsReader(std::unique_ptr<SQLite::Database> database);

  std::unique_ptr<SQLite::Database> database_;
};

}  // namespace kvarena::results
