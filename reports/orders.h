#pragma once
// Orders of methods by their distance from full KV, and how far two of them agree.

#include <map>
#include <string>
#include <vector>

#include "reports/document.h"

namespace kvarena::reports {

/// Methods on the samples of one protocol or workload.
struct Order {
  std::string name;
  std::vector<std::string> samples;                      // contexts count as one
  std::map<std::string, std::vector<double>> distances;  // of each method on the samples
  bool certain = true;                                   // has enough samples for an interval
};

/// Kendall's tau of every two orders of a group that have samples, over the methods that both hold.
[[nodiscard]] Table agreement_table(const std::vector<std::vector<Order>>& groups);

}  // namespace kvarena::reports
