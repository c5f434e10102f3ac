#pragma once
// Rows of the results database as plain structs. The columns of the same names are described in migrations/. Members
// that end in `_json` are JSON text; the writer makes it canonical (keys sorted, no blanks), so equal content has equal
// bytes.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena::results {

/// Source of a time. `none`: the value is no time and must be equal in every repetition of the run.
enum class Clock { none, measured, modelled };
/// Whether the bytes were really saved and the links really there.
enum class Storage { real, emulated, simulated };
/// Kinds of cells. `noise_floor`: the baseline once more on some samples, in passes of another shape; its differences
/// from the cell of kind quality are noise. `serving`: requests that arrive over time; its samples are the points of a
/// sweep of load.
enum class CellKind { quality, timing, noise_floor, serving };
/// Whether larger or smaller values of a metric are better.
enum class Direction { neither, higher, lower };
/// `inactive`: every sample was evaluated and the method acted on none of them. `missing`: the method's weights are not
/// there; nothing was evaluated.
enum class CellState { pending, running, done, failed, inactive, missing };
enum class RunState { running, finished, interrupted, failed };

[[nodiscard]] std::string_view name(Clock value);
[[nodiscard]] std::string_view name(Storage value);
[[nodiscard]] std::string_view name(CellKind value);
[[nodiscard]] std::string_view name(Direction value);  // "" for neither
[[nodiscard]] std::string_view name(CellState value);
[[nodiscard]] std::string_view name(RunState value);

/// One metric of one sample or cell. NaN is stored as NULL: not defined here.
struct MetricValue {
  std::string metric;  // "token_f1"
  double value = 0;
  std::string unit;  // "percent", "ms", "bytes", "nats"; "" = a plain number
  Clock clock = Clock::none;
  Storage storage = Storage::real;
};

/// One number per step, round or repeat.
struct Series {
  std::string name;           // "kl_nats"
  std::vector<float> values;  // NaN = not defined
  std::string unit;
  Clock clock = Clock::none;
  Storage storage = Storage::real;
};

/// A tier move, a verify round, a retry.
struct Event {
  std::string event;
  std::optional<double> at_ms;  // since the sample began
  std::string data_json = "{}";
};

/// All results of one method on one sample. Written in one transaction.
struct SampleResult {
  std::string cell_id;
  std::string sample_id;
  int64_t sample_index = 0;  // order within the workload
  std::string prompt_sha256;
  std::string context;  // that it and others of the workload ask about; "" = its own
  int64_t prompt_tokens = 0;
  int64_t truncated_tokens = 0;  // cut from the prompt to fit
  int64_t output_tokens = 0;
  std::string prediction;
  std::string references_json = "[]";  // list of accepted answers
  std::string finish_reason;           // "stop", "length"
  bool active = true;                  // the method acted; full KV is always active
  std::string activity_json = "{}";    // counters that prove it
  double wall_s = 0;
  std::vector<MetricValue> values;
  std::vector<Series> series;
  std::vector<Event> events;
  std::map<std::string, int64_t> peak_bytes;  // by tier; the cell keeps the largest
};

/// Why the database would refuse a result: JSON members that are not JSON, a metric or series twice. "" = no reason.
/// Lets a caller refuse one result rather than lose the batch.
[[nodiscard]] std::string problem_of(const SampleResult& result);

/// A method that could not go on: costs its cell, nothing else.
struct CellFailure {
  std::string cell_id;
  std::string sample_id;  // at which it failed; "" = before the first
  std::string reason;
  std::string log;  // last lines that a process wrote which it ended, or of the traceback of a method in Python
};

/// One cell of the plan. `cell_id` is the caller's: equal content must have equal ids.
struct CellRecord {
  std::string cell_id;
  std::string experiment;
  CellKind kind = CellKind::quality;
  std::string model;  // labels, unique within the experiment
  std::string model_json = "{}";
  std::string workload;
  std::string workload_json = "{}";
  std::string method;
  std::string method_name;
  std::string settings_json = "{}";
  std::string engine_json = "{}";
  std::string protocol_json = "{}";
  std::string protocol_sha256;
  bool baseline = false;
  int64_t position = 0;
  int64_t planned_samples = 0;
  int64_t left_out_samples = 0;  // beyond the model's window, so no method of the workload has them
};

/// Words that a judge model is told beside an answer, so that it can be asked when the run is over.
struct JudgeRequest {
  static constexpr const char* kEvent = "ask_judge";  // of its sample, with metric, request and reference
  std::string cell_id;
  std::string sample_id;
  std::string metric;     // whose question is asked
  std::string request;    // what was answered
  std::string reference;  // the truth; "" where the question shows none
};

/// The judge whose marks an experiment holds under a metric of sample values.
struct JudgeRecord {
  std::string metric;
  std::string model;            // as its endpoint names it
  std::string question_sha256;  // of the question, with the judge's system message and temperature
};

/// Unit, direction and title of a metric.
struct MetricDefinition {
  std::string metric;
  std::string title;
  std::string unit;  // unit of stored values: "fraction", "nats", "ms"; "" = a plain number
  Direction better = Direction::neither;
  double table_scale = 1;  // papers print the stored value times this
};

/// Statistic of a metric's values that a paper prints: their mean; the least of them; the mean over the baseline's
/// mean, or the baseline's over it; the median over samples of the share of the baseline's value that is lost, or the
/// standard deviation of that share over its mean; the share of samples that the method is best for, of those that keep
/// about as many bytes; the deviation over the mean of the share of bytes that is best removed, sample by sample; of a
/// time, that of other settings at the method's quality over its own; of a quality, what it is more than that of other
/// settings at the method's time to the first token, over theirs. The mean over the baseline's, less 1; of a quality,
/// what it is more than that of other settings at the method's tokens a second; of a time, that of other settings over
/// that of the fastest one of the method's that loses at most 3% of their quality; of a time under load, the load at
/// which the method has it over the load at which other settings do.
enum class Statistic {
  mean,
  minimum,
  relative,
  reduction,
  median_drop,
  drop_variation,
  best_for,
  best_ratio_variation,
  equal_quality,
  equal_time,
  gain,
  equal_rate,
  near_reduction,
  equal_time_load
};
inline constexpr std::array kStatistics = {
    Statistic::mean,           Statistic::minimum,        Statistic::relative, Statistic::reduction,
    Statistic::median_drop,    Statistic::drop_variation, Statistic::best_for, Statistic::best_ratio_variation,
    Statistic::equal_quality,  Statistic::equal_time,     Statistic::gain,     Statistic::equal_rate,
    Statistic::near_reduction, Statistic::equal_time_load};
[[nodiscard]] std::string_view name(Statistic value);
/// Whether a value of it may name the methods that it is held against.
[[nodiscard]] bool has_rivals(Statistic value);

/// Signs before a printed value that is no exact one.
inline constexpr std::array<std::string_view, 6> kBounds = {"", "~", "<", "<=", ">", ">="};

/// The workload of a published value that speaks of all workloads of its experiment.
inline constexpr std::string_view kAllWorkloads = "all";
/// The metric of a published value of all workloads that are each scored by a metric of their own.
inline constexpr std::string_view kAnyScore = "score";

/// The method of a published value that speaks of the best of all methods of its experiment.
inline constexpr std::string_view kAllMethods = "all";

/// A value printed in a paper.
struct PublishedValue {
  std::string model, workload, method, metric;  // labels as in the config; see labels_fitting()
  std::vector<std::string> against = {};        // labels of the methods it is held against; none: the baseline
  double value = 0;
  std::optional<double> upper;  // of a printed range, which begins at `value`
  std::string unit;
  Statistic statistic = Statistic::mean;
  std::string bound;  // of kBounds
  std::string source;
  std::string note;
};

struct ExperimentRecord {
  std::string experiment;
  std::string title;
  std::string config_json = "{}";
  std::string table_json = "{}";
  std::vector<PublishedValue> published;
};

/// A file that decided numbers.
struct RunInput {
  std::string kind;  // "model", "data", "artifact", "plugin"
  std::string name;  // unique among the inputs of its kind and model
  std::string sha256;
  std::string detail_json = "{}";
  std::string model;  // label of the model that read it; "" = all
};

/// One start of `kvarena run`. Members up to `libraries_json` are filled by collect_provenance() (provenance.h of the
/// experiment folder); id, state and times are the store's.
struct RunRecord {
  std::string git_revision;
  std::string build_json = "{}";
  std::string host;
  std::string kernel;
  std::string cpu_model;
  std::string cpu_features;
  int64_t cpu_threads = 0;
  std::string gpu;
  std::string libraries_json = "{}";
  std::string config_path;
  std::string config_text;
  std::string overrides_json = "{}";
  int64_t seed = 0;
  std::string experiment;

  std::string run_id;
  RunState state = RunState::running;
  std::string config_sha256;
  std::string started_at;   // UTC, ISO 8601
  std::string finished_at;  // "" while running
};

}  // namespace kvarena::results
