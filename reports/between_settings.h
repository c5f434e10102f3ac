#pragma once
// Inside the reports folder: printed ratios between settings, at equal quality, time, rate or latency under load.

#include "reports/printed_values.h"

namespace kvarena::reports {

/// At equal quality, time or rate, and the reduction within 3%: over all printed workloads, by their means.
[[nodiscard]] Ours beside_settings(const ExperimentData& data, const results::PublishedValue& printed);

/// The load of the method over that of its rivals, at the latencies that either has at some load and both reach: their
/// mean. Loads at which the score is below serving.score_share do not count.
[[nodiscard]] Ours load_at_equal_time(const ExperimentData& data, const results::PublishedValue& printed,
                                      const std::string& workload);

}  // namespace kvarena::reports
