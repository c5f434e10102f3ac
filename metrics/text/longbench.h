#pragma once
// LongBench's own way from predictions to the number in a table.

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena::metrics {

/// The metric id of a LongBench task ("hotpotqa" -> "qa_f1"). Throws UserError that names the nearest task.
[[nodiscard]] std::string longbench_metric(std::string_view dataset);

/// Whether the scorer cuts predictions of this task to their first line (trec, triviaqa, samsum, lsht).
[[nodiscard]] bool longbench_first_line_only(std::string_view dataset);

/// One sample's score in [0, 1] under the task's metric and first-line rule, best over the answers.
[[nodiscard]] double longbench_sample_score(std::string_view dataset, std::string_view prediction,
                                            std::span<const std::string> answers, const nlohmann::json& extras);

/// round(100 * mean, 2) of per-sample scores summed in order.
[[nodiscard]] double longbench_table_score(std::span<const double> scores);

/// LongBench-E: the same per bucket of the `length` field: "0-4k", "4-8k", "8k+"; NaN for an empty bucket.
[[nodiscard]] std::map<std::string, double> longbench_e_table_scores(std::span<const double> scores,
                                                                     std::span<const int64_t> lengths);

}  // namespace kvarena::metrics
