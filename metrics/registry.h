#pragma once
// The register of metrics. A metric is one file with one KVARENA_METRIC line at its end.

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/stored_metrics.h"

namespace kvarena::metrics {

struct JudgeQuestion;

enum class MetricKind {
  text,          ///< a prediction against references
  functional,    ///< something that is parsed and checked: function calls, patches
  distribution,  ///< logits, token sequences, attention weights, embeddings
  latency,       ///< times of requests, bytes of caches
  protocol,      ///< a rule that decides what the model sees (grids, insertion, truncation); no score of its own
};

[[nodiscard]] std::string_view name_of(MetricKind kind);
[[nodiscard]] std::string_view name_of(Better better);

/// One prediction to be scored. `extras` is an object; a metric reads from it only the members its summary names
/// (all_classes, schema, task ...) and must work when there are others.
struct MetricInput {
  std::string_view prediction;
  std::span<const std::string> references;
  const nlohmann::json& extras;
};

/// `score` is in [0, 1] whatever scale a paper prints. `values` are further numbers worth storing beside it (precision,
/// recall, the score under another convention); `notes` are words (the extracted answer, the kind of error).
struct MetricScore {
  double score = 0;
  std::map<std::string, double> values;
  std::map<std::string, std::string> notes;
};

/// Throws UserError when `extras` lacks something the metric needs or has it in another form.
using ScoreFunction = MetricScore (*)(const MetricInput& input);

/// Inputs of a test vector beside its parsed row.
struct VectorContext {
  std::filesystem::path
      data_folder;            ///< where rows that vectors refer to are (BFCL entries, ComplexFuncBench dialogues)
  std::string_view row_text;  ///< the row as written, for metrics that depend on the order of members
};

/// From the inputs of a test-vector row to an object with the same `expected...` members, computed here.
using RecomputeFunction = nlohmann::json (*)(const nlohmann::json& row, const VectorContext& context);

struct MetricEntry {
  std::string id;
  std::string title;
  MetricKind kind = MetricKind::text;
  std::string unit = "fraction";  ///< of the stored value: fraction, nats, seconds, tokens per second ...
  double table_scale = 100;       ///< what papers print is the stored value times this
  Better better = Better::higher;
  int version = 1;  ///< rises with every change that moves a score; part of a run's protocol card
  std::string summary;
  std::string source;             ///< paper section, or repository @ commit and file
  ScoreFunction score = nullptr;  ///< null for metrics that do not score one prediction against references
  bool needs_references = true;   ///< false: a prediction is scored by itself
  /// The question to the judge model, unless a user gives another; null for metrics that ask no judge.
  const JudgeQuestion* judge = nullptr;
  /// Files that its scores depend on; null for metrics that need none. Their content is part of a run's protocol card.
  std::vector<std::filesystem::path> (*data)() = nullptr;
  /// In a run the reference is the answer under the full cache, not what the data set accepts.
  bool against_full_cache = false;
  /// Values that a run stores under names of their own, beside the metric's id or in its place.
  std::vector<StoredMetric> stored = {};
  std::map<std::string, RecomputeFunction> vectors;  ///< by the `metric` member of vector rows
};

/// Every registered metric, sorted by id.
[[nodiscard]] std::vector<const MetricEntry*> all_metrics();

/// The metric of that id. Throws UserError that names the nearest one.
[[nodiscard]] const MetricEntry& find_metric(std::string_view id);

/// Scores one sample. With `"first_line_only": true` in extras the prediction is first cut to its first line after
/// leading newlines (LongBench: trec, triviaqa, samsum, lsht). Throws UserError when the metric is not of that sort.
[[nodiscard]] MetricScore score_sample(const MetricEntry& metric, const MetricInput& input);

/// prediction.lstrip("\n").split("\n")[0]
[[nodiscard]] std::string_view first_line(std::string_view prediction);

namespace detail {
struct MetricRegistration {
  explicit MetricRegistration(MetricEntry entry);
};
}  // namespace detail

/// KVARENA_METRIC({.id = "qa_f1", ...}); last line of a metric's file. Throws InternalError on an id taken twice.
#define KVARENA_METRIC(...) static const ::kvarena::metrics::detail::MetricRegistration kMetricRegistration(__VA_ARGS__)

}  // namespace kvarena::metrics
