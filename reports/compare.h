#pragma once
// Two databases, cell by cell and sample by sample.

#include "reports/document.h"
#include "reports/experiment_data.h"

namespace kvarena::reports {

struct Comparison {
  Document document;
  int64_t better = 0;
  int64_t worse = 0;
  int64_t within_noise = 0;
  int64_t differs = 0;      // in a metric that is good in neither direction
  int64_t regressions = 0;  // worse by more than the margin
};

/// Pairs the quality cells of `after` with those of `before` that have the same method and workload labels, on each
/// workload's own metric and in its own direction. `margin` is in the unit that tables print: points of a percentage
/// for scores, ms for times. Throws UserError when no cell is in both, when prompts of a sample differ, or when cards
/// differ and `allow_unlike_cards` is not set.
[[nodiscard]] Comparison compare(const ExperimentData& before, const ExperimentData& after, double margin,
                                 bool allow_unlike_cards);

}  // namespace kvarena::reports
