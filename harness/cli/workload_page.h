#pragma once
// The registry of workloads as a Markdown page: docs/workloads.md.

#include <string>

namespace kvarena::cli {

/// Markdown: a table a family: what each workload measures, by which metrics, over how many official samples.
[[nodiscard]] std::string workload_page();

}  // namespace kvarena::cli
