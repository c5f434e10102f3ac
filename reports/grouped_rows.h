#pragma once
// Rows of several answers that count as one sample: draws of its answer, questions about its context.

#include <map>
#include <string>

#include "metrics/stored_metrics.h"
#include "reports/experiment_data.h"

namespace kvarena::reports {

/// Made of a cell's answers here, and stored nowhere.
inline constexpr metrics::StoredMetric kPassAtK{"pass_at_k", "Right in some draw"};

/// Gives a cell whose samples were answered several times ("ID#1", "ID#2", ...) one value for each: the mean over its
/// draws (avg@k), so that intervals and comparisons are over samples; and of `score`, the metric that tables show,
/// pass_at_k: 1 where some draw has a score of 1 (pass@k). Draws that are still to come are left out.
void average_draws(CellData& cell, const std::string& score);

/// Gives a cell several of whose samples ask about one context one value for each context: the mean over its questions.
/// Intervals and comparisons are then over contexts, since questions about one depend on each other. Rows are named by
/// the samples in them, so that only those of equal questions are paired. `contexts`: by sample id; a sample that has
/// its own is absent.
void average_contexts(CellData& cell, const std::map<std::string, std::string>& contexts);

}  // namespace kvarena::reports
