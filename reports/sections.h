#pragma once
// Sections of a report. Every function takes an experiment with the cells of one model.

#include <optional>
#include <span>

#include "reports/comparisons.h"
#include "reports/document.h"
#include "reports/experiment_data.h"

namespace kvarena::reports {

/// The answer first: for each amount of bytes what methods cost and which cannot be told apart, times beyond noise,
/// what so few samples may miss; and quality against bytes as a picture. Nothing when there is nothing to say.
[[nodiscard]] std::optional<Section> summary_section(const ModelCells& model, bool unlike_prompts);

/// Scores by workload with paired verdicts, corrected for the number of comparisons, the second run of the baseline as
/// a row, and what so many samples could show at all. `models`: the experiment's cells, model by model.
[[nodiscard]] Section quality_section(const ExperimentData& data, std::span<const ModelCells> models);

/// A heat map a method, where a workload's samples are a grid of lengths and depths; nothing elsewhere.
[[nodiscard]] std::optional<Section> needle_section(const ExperimentData& data);

/// Printed values beside ours, in the unit they were printed in; those of models that were not run too, told apart.
[[nodiscard]] std::optional<Section> published_section(const ExperimentData& data);

/// Losses of single samples, and what is best for each; nothing unless similarity to full KV's answers was measured.
[[nodiscard]] std::optional<Section> sample_section(const ExperimentData& data);

/// Nothing when no cell holds a distance, as when texts are scored and nothing is answered.
[[nodiscard]] std::optional<Section> distance_section(const ExperimentData& data);
/// pass@k, where samples were answered several times.
[[nodiscard]] std::optional<Section> draws_section(const ExperimentData& data);
/// Distance and bytes by generated length, where a method's bytes shrink while it decodes; log-probability by position,
/// where texts are scored.
[[nodiscard]] std::optional<Section> length_section(const ExperimentData& data);
[[nodiscard]] std::optional<Section> server_section(const ExperimentData& data);
/// Nothing when no cell's bytes were counted after its prompt, as when requests are timed alone.
[[nodiscard]] std::optional<Section> memory_section(const ExperimentData& data);
/// Entries that decoding attended to, where they were measured.
[[nodiscard]] std::optional<Section> selection_section(const ExperimentData& data);
/// Bytes over links, where a method keeps entries behind the device.
[[nodiscard]] std::optional<Section> link_section(const ExperimentData& data);
[[nodiscard]] std::optional<Section> verification_section(const ExperimentData& data);
[[nodiscard]] std::optional<Section> reuse_section(const ExperimentData& data);
/// Medians with their spread over repeats, measured and modelled times in rows of their own.
[[nodiscard]] std::optional<Section> speed_section(const ExperimentData& data);
/// Sweeps of load: a row a method, clock and point.
[[nodiscard]] std::optional<Section> serving_section(const ExperimentData& data);
/// Latencies of requests whose prompts' caches lie behind links, and the bytes that these carried.
[[nodiscard]] std::optional<Section> remote_prefix_section(const ExperimentData& data);

/// Tiers on which requests found the caches of stored contexts, and the quality of their answers.
[[nodiscard]] std::optional<Section> contexts_section(const ExperimentData& data);
/// Cells that failed and methods that never acted.
[[nodiscard]] std::optional<Section> outcome_section(const ExperimentData& data);

/// Provenance of the last run's numbers: source, build, machine, inputs.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> provenance(const ExperimentData& data);

/// The table cell of a cell that failed or never acted; nothing when it may have a number.
[[nodiscard]] std::optional<TableCell> state_cell(const CellData* cell);
/// Ids and titles that stay apart when several models, protocols or experiments are in one report.
void name_after(Section& section, const std::string& name);
/// Gives a table of requests of this length (ExperimentData::for_request_lengths()) an id and a title of its own.
void name_after_length(Table& table, const std::string& length);
/// Sets the marks of a number that comes from these values: simulated, emulated, modelled.
void mark_origin(TableCell& cell, const results::ValueColumn& values);

}  // namespace kvarena::reports
