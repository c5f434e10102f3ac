#pragma once
// Inside the reports folder: requests over stored contexts by the length of their prompts.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reports/experiment_data.h"
#include "reports/table.h"

namespace kvarena::reports {

/// Times to first token in ms of a serving cell's point, by request; NaN for one without an answer.
[[nodiscard]] std::vector<float> first_token_by_request(const CellData& cell, const std::string& point);

/// Similarity and time to first token of the shorter and of the longer half of the requests, a row a method and point:
/// arXiv:2512.14946, figure 12. Nothing where prompts are about equally long.
[[nodiscard]] std::optional<Table> context_length_table(std::span<const CellData* const> cells);

}  // namespace kvarena::reports
