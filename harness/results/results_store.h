#pragma once
// Writing a results database: one writer, many readers, one transaction per batch of samples.

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "harness/core/file_lock.h"
#include "harness/results/records.h"
#include "harness/results/results_reader.h"

namespace kvarena::results {

struct MergeSummary {
  int64_t samples = 0;  // samples that were new
  int64_t there = 0;    // samples that both held, equal
  int64_t ended = 0;    // cells in force that are done, inactive, failed or missing now, of `cells`
  int64_t cells = 0;
};

/// The only writer of one database, from construction to destruction. A killed process leaves what was committed and
/// releases the writer's lock. For one thread at a time.
class ResultsStore {
 public:
  /// Opens `path`, creating the file (not its folder) when absent, and brings its schema to this program's version.
  /// Before any work it throws UserError naming the file when another process writes to it, when the file or its folder
  /// cannot be written, when the disk is full, when the file belongs to another program, is damaged, or has a newer
  /// schema.
  static ResultsStore open_or_create(const std::filesystem::path& path);
  ~ResultsStore();
  ResultsStore(ResultsStore&&) noexcept;
  ResultsStore& operator=(ResultsStore&&) = delete;

  /// Records the experiment (replacing title, table and published values of the same name) and a new run of it.
  /// Returns the run's id.
  std::string begin_run(const ExperimentRecord& experiment, const RunRecord& run);
  /// Records what metrics mean, replacing definitions of the same name.
  void define_metrics(std::span<const MetricDefinition> metrics);
  void add_input(const std::string& run_id, const RunInput& input);
  void finish_run(const std::string& run_id, RunState state);

  /// Adds cells that are new, updates position, baseline and numbers of samples of those that are known, and marks as
  /// superseded the cells that hold the same labels with other settings. A known cell keeps its samples and state.
  void upsert_cells(std::span<const CellRecord> cells);
  /// Says why a cell of which nothing is evaluated cannot be: its method's weights are not there.
  void mark_missing(const std::string& cell_id, const std::string& reason);
  /// Makes a failed cell pending again and forgets nothing it has done.
  void retry_failed(const std::string& cell_id);

  /// Writes results and failures in one transaction. A (cell, sample) that is already there is left as it is, so
  /// repeating a batch changes nothing. A pending cell becomes running.
  void commit(const std::string& run_id, std::span<const SampleResult> results,
              std::span<const CellFailure> failures = {});

  /// Ends a cell all of whose samples are evaluated: done, or inactive when no sample was active; writes `values`, the
  /// metrics of the whole cell. Repeating it changes nothing.
  void settle_cell(const std::string& cell_id, std::span<const MetricValue> values);

  /// Records whose marks an experiment is to hold, for each metric that they are stored under. Throws UserError where
  /// marks of another judge or to another question are there; with `replace` takes these away.
  void set_judges(const std::string& experiment, std::span<const JudgeRecord> judges, bool replace);
  /// Writes a judge's marks of one answer in one transaction.
  void add_marks(const JudgeRequest& request, std::span<const MetricValue> marks);

  /// Adds what the database `part` holds. Merging again changes nothing, and the content does not depend on the order
  /// in which parts are merged. A cell that failed in one part has failed; of several reasons the first by alphabet
  /// stays. A cell all of whose samples are there has ended. Throws UserError naming both files and changes nothing
  /// when they contradict each other: an experiment of another config, the same labels evaluated under other
  /// conditions, one sample with two results, one metric with two meanings. Values of the measured clock never
  /// contradict: those that were there first stay.
  MergeSummary merge(const std::filesystem::path& part);

  /// Reads through the writer's own connection: sees every commit so far.
  [[nodiscard]] const ResultsReader& read() const { return reader_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  ResultsStore(std::filesystem::path path, FileLock lock, ResultsReader reader);

  std::filesystem::path path_;
  FileLock lock_;
  ResultsReader reader_;  // owns the connection, which writes too
};

/// "3.40.1": the library that runs, which may be newer than the one built against.
[[nodiscard]] std::string sqlite_version();

}  // namespace kvarena::results
