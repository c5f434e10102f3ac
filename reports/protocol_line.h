#pragma once
// Protocol that all rows of a report share: how prompts were made, weights held and answers drawn.

#include <string>

#include "reports/document.h"
#include "reports/experiment_data.h"

namespace kvarena::reports {

/// One sentence of the entries of the protocol cards, "dtype bf16"; an entry that workloads differ in says so of each.
/// Hashes are left to the provenance. Of workloads that were not scored, the entries of timed cells.
[[nodiscard]] std::string protocol_line(const ExperimentData& data);

/// Says in the caption of every table whether methods saw the question (ExperimentData::questions()).
void caption_question(Section& section, const std::string& question);

/// Says in the caption of every table and chart what is asked of stored contexts, and how often; nothing without such.
void caption_asking(Section& section, const ExperimentData& data);

/// Says in the caption of every table how many contexts stand for how many questions, where several are about one.
void caption_contexts(Section& section, const ExperimentData& data);

/// Says in the caption of every table how many samples of which workloads were left out, as beyond the model's window.
void caption_left_out(Section& section, const ExperimentData& data);

}  // namespace kvarena::reports
