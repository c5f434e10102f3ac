#include "harness/cli/workload_choice.h"

#include <algorithm>

namespace kvarena::cli {

std::vector<const datasets::WorkloadEntry*> chosen_workloads(const std::vector<std::string>& names) {
  std::vector<const datasets::WorkloadEntry*> chosen;
  const auto add = [&](const datasets::WorkloadEntry& entry) {
    if (std::ranges::find(chosen, &entry) == chosen.end()) chosen.push_back(&entry);
  };
  for (const std::string& name : names) {
    bool known = false;
    for (const datasets::WorkloadEntry& entry : datasets::workloads()) {
      if (entry.info.family != name && entry.info.name != name) continue;
      known = true;
      add(entry);
    }
    if (!known) add(datasets::find_workload(name, "WORKLOAD"));
  }
  if (!names.empty()) return chosen;
  for (const datasets::WorkloadEntry& entry : datasets::workloads()) add(entry);
  return chosen;
}

}  // namespace kvarena::cli
