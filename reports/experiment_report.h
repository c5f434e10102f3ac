#pragma once
// The report of one experiment, from its data to a document.

#include "reports/document.h"
#include "reports/experiment_data.h"

namespace kvarena::reports {

struct ReportOptions {
  /// Rows with different protocol cards are refused unless this is set; then each says how it differs.
  bool allow_unlike_cards = false;
};

/// Quality by workload with paired intervals, distance from full KV, memory, acceptance, speed, failures and what was
/// inactive, provenance. Throws UserError naming the cells and the entries in which their cards differ.
[[nodiscard]] Document experiment_report(const ExperimentData& data, const ReportOptions& options = {});

/// Fewer resamples for more values (10,000 up to 200 values, at least 400): a report of 100,000 samples stays a matter
/// of seconds, and the interval's own error stays a small part of its width.
[[nodiscard]] ResamplingOptions resampling_for(size_t values);

/// The paired verdict on a metric of two cells over the samples both have; nothing when they share none.
[[nodiscard]] std::optional<Difference> paired_verdict(const CellData& method, const CellData& baseline,
                                                       const std::string& metric, Better better, double scale);

/// The metric that tables show for a workload: the first of its card.
[[nodiscard]] std::string primary_metric(const ExperimentData& data, const std::string& workload);

}  // namespace kvarena::reports
