#pragma once
// Scoring files of predictions that other programs wrote.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "metrics/registry.h"
#include "metrics/statistics.h"

namespace kvarena::metrics {

/// One line of a prediction file in common terms.
struct PredictionRow {
  std::string id;  ///< the row's id, _id, sample_id or doc_id; else empty
  std::string prediction;
  std::vector<std::string> references;
};

/// The row of one JSON object. Predictions: "prediction", "pred", "response", "completion", or lm-evaluation-harness's
/// "filtered_resps" (else "resps"), of which the first answer counts. References: "references", "answers", "reference",
/// "answer", "outputs", "target", "ground_truth", as a text, a number or a list of those. Throws UserError that names
/// the missing field and the fields there are; with `references_needed` false, rows may do without references.
[[nodiscard]] PredictionRow read_prediction(const nlohmann::json& row, bool references_needed = true);

struct ScoredSample {
  int64_t line = 0;  ///< in the prediction file, from 1
  std::string id;
  MetricScore score;
};

struct ScoreFileOptions {
  /// Added to every row's extras, over which they win: {"dataset": "trec"}, {"task": "passkey"}.
  std::string extras_json = "{}";
  /// References by line from a second JSONL file (a data set), matched by id where both have one, else by order.
  std::filesystem::path references_file;
  ResamplingOptions resampling;
  /// Replaces a row's prediction by what is scored instead: a judge's words about it. Empty: the prediction is scored.
  std::function<std::string(const nlohmann::json& row, const PredictionRow& sample)> rewrite;
};

struct FileScore {
  std::string metric;
  int64_t samples = 0;
  int64_t unread = 0;      ///< samples that the metric could not read (values.parsed is 0); the mean is of the others
  double mean = 0;         ///< of scores in [0, 1]; 0 without samples
  Interval interval;       ///< percentile bootstrap; [mean, mean] without samples
  double table_value = 0;  ///< mean times the metric's table_scale, as papers print it (not rounded)
};

/// Scores a JSONL file line by line; the whole row is the metric's extras, so all_classes, length and the like reach
/// it, with the fields of the "doc" of lm-evaluation-harness's files beside them. `visit` (may be empty) sees each
/// sample as it is scored. Throws UserError with "file:line: " for a line that is not UTF-8, not a JSON object, or
/// lacks a field, and for a references file without the row that is asked for.
FileScore score_file(const std::filesystem::path& predictions, const MetricEntry& metric,
                     const ScoreFileOptions& options = {},
                     const std::function<void(const ScoredSample&)>& visit = nullptr);

}  // namespace kvarena::metrics
