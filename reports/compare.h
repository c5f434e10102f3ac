#pragma once
// Two databases, cell by cell and sample by sample.

#include <optional>

#include "reports/document.h"
#include "reports/experiment_data.h"

namespace kvarena::reports {

/// Margins are in the unit that tables print: points of a percentage for scores, ms for times.
struct CompareOptions {
  double margin = 0;                   // a mean that moves by no more is neither better nor worse
  std::optional<double> fail_on_drop;  // a mean that gets worse by more is a regression; absent = margin
  bool allow_unlike = false;           // compare cells whose settings or protocol cards differ
};

struct Comparison {
  Document document;
  int64_t better = 0;
  int64_t worse = 0;
  int64_t changed = 0;      // scores or answers, and the mean by no more than the margin
  int64_t same = 0;         // every score and answer
  int64_t failed = 0;       // cells that had scores and failed, or whose method acts no more
  int64_t regressions = 0;  // worse by more than fail_on_drop, or failed
};

/// Pairs the quality cells of `after` with those of `before` that have the same method and workload labels, on each
/// workload's own metric and in its own direction. Runs are deterministic, so every change is one, however few samples
/// show it; where two runs of a baseline differ, a change must exceed that. Methods of one run alone are named. Throws
/// UserError when no cell is in both, when prompts of a sample differ, or when settings or cards differ and
/// `allow_unlike` is not set.
[[nodiscard]] Comparison compare(const ExperimentData& before, const ExperimentData& after,
                                 const CompareOptions& options);

}  // namespace kvarena::reports
