#include "harness/cli/workload_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "datasets/workload.h"
#include "harness/core/markdown.h"

namespace kvarena::cli {
namespace {

constexpr const char* kIntroduction =
    "<!-- Written by `kvarena workloads --page docs/workloads.md`; a test compares. -->\n# Workloads\n\n"
    "`kvarena workloads NAME` describes one with its settings, `kvarena workloads pull NAME` fetches its official "
    "files, `kvarena metrics NAME` says where a metric's definition is from. Samples are of the official sets; small "
    "project-made ones stand in where the files are not there, and every table says so.\n";

std::string row_of(const datasets::WorkloadInfo& info) {
  const std::string files = info.files.empty() ? "generated" : info.licence;
  return markdown_row({fmt::format("`{}`", info.name), info.title, fmt::format("{}", fmt::join(info.metrics, ", ")),
                       fmt::format("{}", info.samples), fmt::format("{}", info.generation.max_new_tokens), files});
}

}  // namespace

std::string workload_page() {
  std::map<std::string, std::string> families;
  for (const datasets::WorkloadEntry& entry : datasets::workloads()) families[entry.info.family] += row_of(entry.info);
  std::string text = kIntroduction;
  for (const auto& [family, rows] : families) {
    text += fmt::format("\n## {}\n\n", family);
    text += markdown_row({"workload", "what it measures", "metrics", "samples", "answer, tokens", "licence"});
    text += markdown_row({"---", "---", "---", "---:", "---:", "---"}) + rows;
  }
  return text;
}

}  // namespace kvarena::cli
