#pragma once
// Names workloads of project-made samples to people.

#include <span>
#include <string>

#include "harness/results/invented_data.h"

namespace kvarena::cli {

/// "qasper, hotpotqa: project-made sample, not LongBench".
[[nodiscard]] std::string invented_text(std::span<const results::InventedData> data);

}  // namespace kvarena::cli
