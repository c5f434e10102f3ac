#include "harness/cli/invented_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace kvarena::cli {

std::string invented_text(std::span<const results::InventedData> data) {
  std::vector<std::string> workloads;
  for (const results::InventedData& one : data) {
    if (std::ranges::find(workloads, one.workload) == workloads.end()) workloads.push_back(one.workload);
  }
  return fmt::format("{}: {}", fmt::join(workloads, ", "), results::invented_mark(data));
}

}  // namespace kvarena::cli
