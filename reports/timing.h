#pragma once
// Whether two methods differ in a time: repeats of one machine vary, so only what lies beyond all of them counts.

#include <optional>
#include <string>
#include <vector>

#include "reports/metric_look.h"

namespace kvarena::reports {

struct TimeTest {
  double ratio = 1;            // median of the method's repeats by the baseline's, mean over timed samples (geometric)
  double difference = 0;       // of the medians, median over timed samples
  metrics::Interval interval;  // least and largest of them
  double p_value = 1;          // of the repeats of every sample lying wholly on one side by chance
  Verdict verdict = Verdict::too_few;
};

/// Repeats of a measured time or rate of the method beside the baseline's, sample by sample of cells of kind timing.
/// better or worse: in every sample all repeats of one lie beyond all of the other's, on the same side, which by chance
/// happens in fewer than 5 of 100 cases. too_few: no repeats could show that much. Nothing without common samples.
[[nodiscard]] std::optional<TimeTest> time_test(const ExperimentData& data, const std::string& method,
                                                const std::string& metric);

/// Whether every timed method runs the same prefill, so that times to the first token differ by what a method adds to
/// it alone: none brings entries of earlier prompts or reads prompts in a way of its own; of these no time of observing
/// is stored.
[[nodiscard]] bool share_prefill(const ExperimentData& data);

}  // namespace kvarena::reports
