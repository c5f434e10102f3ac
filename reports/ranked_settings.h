#pragma once
// Settings of methods with their bytes and distances, and those among them that a budget ranks.

#include <map>
#include <string>
#include <vector>

#include "metrics/statistics.h"
#include "reports/experiment_data.h"

namespace kvarena::reports {

/// Distances by sample.
using Samples = std::map<std::string, double>;

/// A setting of a method with its values over all samples of all workloads; questions about a context count as one.
struct Setting {
  std::string label;
  std::string method;      // settings of one method compete for its place: "snapkv", "int8 over snapkv"
  std::string protection;  // beside the method's own, as in the config; "" = none
  std::vector<double> shares;
  std::map<std::string, Samples> by_workload;  // distances of its samples
  std::string failure;                         // why a cell of it has no numbers

  /// Samples of one workload, or those of each, in the order of their labels.
  [[nodiscard]] std::vector<const Samples*> in(const std::string& workload) const;
  /// Distances of these samples.
  [[nodiscard]] std::vector<double> distances(const std::string& workload = "") const;
  [[nodiscard]] bool complete() const { return failure.empty() && !shares.empty() && !distances().empty(); }
  [[nodiscard]] double share() const { return metrics::mean_of(shares); }
  [[nodiscard]] double distance() const { return metrics::mean_of(distances()); }
};

/// Every setting but the baseline, in the order of the plan.
[[nodiscard]] std::vector<Setting> settings_of(const ExperimentData& data);

/// Shares of full KV's bytes: more than `above`, at most `share`.
struct Budget {
  double above = 0, share = 0;
};

struct Chosen {
  std::vector<const Setting*> ranked;  // one a method
  std::vector<const Setting*> beyond;  // of each other method the one with the fewest bytes, fewest first
};

/// Chooses of each method the setting with the most bytes within the budget.
[[nodiscard]] Chosen choose(const std::vector<Setting>& settings, const Budget& budget);

/// Whether the workload, or each of them, has samples enough that intervals over them mean something.
[[nodiscard]] bool has_intervals(const Setting& setting, const std::string& workload);

/// Ranks of settings with intervals on the samples that they share, in one workload or in all; none of too few samples.
[[nodiscard]] std::vector<metrics::RankEstimate> ranks_of(const std::vector<const Setting*>& ranked,
                                                          const std::string& workload);

/// Leaves out samples of which not all of so many settings have a distance: a study that goes on has more of some.
void keep_shared_samples(ExperimentData& data, size_t settings);

}  // namespace kvarena::reports
