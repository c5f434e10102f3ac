#pragma once
// The report of one experiment, from its data to a document.

#include "reports/document.h"
#include "reports/experiment_data.h"

namespace kvarena::reports {

struct ReportOptions {
  /// Rows with different protocol cards or prompts are refused unless this is set; then each says how it differs.
  bool allow_unlike_cards = false;
  std::string baseline;  // label of the method that others are compared with; "" = the config's
};

/// Quality by workload with paired intervals, distance from full KV, memory, acceptance, speed, failures and what was
/// inactive, provenance. Throws UserError naming the cells and the entries in which their cards differ, or the sample
/// whose prompts do.
[[nodiscard]] Document experiment_report(const ExperimentData& data, const ReportOptions& options = {});

/// Several experiments on one page, one after the other: a paper whose tables share a database. `title` is the page's.
[[nodiscard]] Document joined_report(const std::string& title, const std::vector<ExperimentData>& experiments,
                                     const ReportOptions& options = {});

}  // namespace kvarena::reports
