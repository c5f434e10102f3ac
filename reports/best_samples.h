#pragma once
// Inside the reports folder: methods and settings that are best for single samples, by likeness of answers.

#include <map>
#include <string>
#include <vector>

#include "reports/experiment_data.h"

namespace kvarena::reports {

/// Samples that each of some methods is best for.
struct BestFor {
  double samples = 0;                                  // of all of the methods
  std::map<std::string, double> counts;                // by method; a tie counts for each with its part
  std::map<std::string, std::vector<double>> lengths;  // prompts of those that a method alone is best for
};

/// Counts the samples of all workloads that all of the methods answered, by a metric of which more is better.
[[nodiscard]] BestFor best_for(const ExperimentData& data, const std::vector<std::string>& methods,
                               const std::string& metric);

/// The share of full KV's bytes that is best kept, for each sample of a workload that all methods answered: the largest
/// difference of the metric and of resident bytes, both over the baseline's.
[[nodiscard]] std::vector<double> best_shares(const ExperimentData& data, const std::string& workload,
                                              const std::string& metric);

/// Standard deviation over mean; NaN of fewer than two values, or where the mean is 0.
[[nodiscard]] double variation_of(const std::vector<double>& values);

}  // namespace kvarena::reports
