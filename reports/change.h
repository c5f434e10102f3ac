#pragma once
// A cell in two runs of equal settings. Runs are deterministic, so whatever differs was changed.

#include <optional>
#include <string>

#include "reports/verdict.h"

namespace kvarena::reports {

struct Change {
  metrics::PairedDifference test;        // second run against the first
  int64_t answers = 0;                   // samples that were answered in other words
  std::optional<Difference> difference;  // nothing where all scores and answers are the same
};

/// The change from `first` to `second` over the samples that both have; nothing when they share none. The verdict is
/// better or worse when the mean moved by more than `margin`, in the unit of the look, and by more than `floor`: two
/// runs of the baseline that differ are not deterministic, and a smaller change is no difference shown. A change that
/// is neither is `differs`. Throws UserError when a sample has two prompts.
[[nodiscard]] std::optional<Change> change_between(const CellData& first, const CellData& second,
                                                   const std::string& metric, const std::optional<NoiseFloor>& floor,
                                                   const MetricLook& look, double margin);

/// Whether a difference in printed units is larger than a limit: 100 (0.8 - 0.6) is not more than 20.
[[nodiscard]] bool exceeds(double points, double limit);

/// Settings in which two cells differ, of method, workload, engine and model: "keep: 0.5 / 0.25"; empty for none. An
/// engine's or model's setting that only one of the runs knew is none, nor is where the checkpoint lies.
[[nodiscard]] std::string settings_differences(const CellData& first, const CellData& second);

}  // namespace kvarena::reports
