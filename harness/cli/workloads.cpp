// kvarena workloads [WORKLOAD]: what methods are evaluated on.

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "datasets/data_files.h"
#include "datasets/workload.h"
#include "harness/cli/commands.h"
#include "harness/cli/registry_text.h"
#include "harness/cli/workload_page.h"
#include "harness/core/files.h"
#include "harness/core/page.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;

struct Options {
  std::optional<std::string> name;
  std::optional<std::string> family;
  std::filesystem::path data_dir;
  std::filesystem::path page;
  bool json = false;

  void declare(OptionSet& o) {
    o.positional("WORKLOAD", name).help("the workload to describe; without it all are listed");
    o.option("family", "FAMILY", family).help("list one family");
    o.option("data", "FOLDER", data_dir)
        .help("where official data files are looked for")
        .default_text("$KVARENA_DATA, or data in KVARENA_HOME; else small project-made samples");
    o.option("page", "FILE", page).help("write them all as a Markdown page");
    o.flag("json", json).help("write JSON");
  }
};

const char* truncation_text(datasets::TruncationRule rule) {
  switch (rule) {
    case datasets::TruncationRule::none: return "never cut";
    case datasets::TruncationRule::middle_halves:
      return "the middle is cut: first and last half, decoded apart (LongBench)";
    case datasets::TruncationRule::middle_joined:
      return "the middle is cut: first and last half, decoded together (LongBench v2)";
    case datasets::TruncationRule::context_end:
      return "the end of what is before the question is cut (HELMET, ZeroSCROLLS)";
  }
  return "";
}

json entry_json(const datasets::WorkloadEntry& entry, const datasets::WorkloadListing& listing) {
  const datasets::WorkloadInfo& info = entry.info;
  return {{"name", info.name},
          {"family", info.family},
          {"title", info.title},
          {"source", info.source},
          {"download", info.download},
          {"licence", info.licence},
          {"metrics", info.metrics},
          {"samples", info.samples},
          {"status", listing.status},
          {"place", listing.place},
          {"chat_template", info.chat_template},
          {"max_new_tokens", info.generation.max_new_tokens},
          {"truncation", truncation_text(info.truncation)},
          {"parameters", parameters_json(datasets::workload_parameters(entry))}};
}

void describe_workload(const datasets::WorkloadEntry& entry, const datasets::WorkloadListing& listing) {
  const datasets::WorkloadInfo& info = entry.info;
  print(Page().bold(info.name).text("\n").wrapped(info.title).text("\n\n"));
  print(Page().columns(
      fact_rows({{"family", info.family},
                 {"source", info.source},
                 {"licence", info.licence},
                 {"files", fmt::format("{}", fmt::join(info.files, ", "))},
                 {"get them with", info.files.empty() ? "" : fmt::format("kvarena workloads pull {}", info.name)},
                 {"which runs", info.download},
                 {"here", listing.place.empty() || listing.status == "missing" ? listing.status
                                                                               : listing.status + ": " + listing.place},
                 {"samples", fmt::format("{}", info.samples)},
                 {"metrics", fmt::format("{}", fmt::join(info.metrics, ", "))},
                 {"chat template", info.chat_template ? "yes" : "no: the prompt is plain text"},
                 {"answer", fmt::format("at most {} tokens", info.generation.max_new_tokens)},
                 {"long prompts", truncation_text(info.truncation)}})));
  const auto parameters = datasets::workload_parameters(entry);
  if (!parameters.empty()) print(Page().text("\n").bold("Settings").text("\n").columns(parameter_rows(parameters)));
}

/// Data files present for each workload, by name.
std::map<std::string, datasets::WorkloadListing> listings(const std::filesystem::path& data_dir) {
  std::map<std::string, datasets::WorkloadListing> by_name;
  for (datasets::WorkloadListing& listing : kvarena::datasets::list_workloads(data_dir))
    by_name[listing.name] = std::move(listing);
  return by_name;
}

void print_list(const std::vector<const datasets::WorkloadEntry*>& entries,
                const std::map<std::string, datasets::WorkloadListing>& there) {
  std::map<std::string, std::vector<std::vector<std::string>>> families;
  for (const datasets::WorkloadEntry* entry : entries) {
    const datasets::WorkloadListing& listing = there.at(entry->info.name);
    families[entry->info.family].push_back(
        {entry->info.name, fmt::format("{}", listing.samples), listing.status, entry->info.title});
  }
  bool first = true;
  for (const auto& [family, rows] : families) {
    print(Page().text(first ? "" : "\n").bold(family).text("\n").columns(rows));
    first = false;
  }
  fmt::print(stderr,
             "Samples are of the official sets; `kvarena workloads WORKLOAD` says where its files come from.\n");
}

int run(const Options& options) {
  if (!options.page.empty()) {
    write_file(options.page, workload_page());
    return 0;
  }
  const std::map<std::string, datasets::WorkloadListing> there = listings(options.data_dir);
  if (options.name) {
    const datasets::WorkloadEntry& entry = datasets::find_workload(*options.name, "workloads");
    if (options.json) {
      print(fmt::format("{}\n", entry_json(entry, there.at(entry.info.name)).dump(2)));
    } else {
      describe_workload(entry, there.at(entry.info.name));
    }
    return 0;
  }
  std::vector<const datasets::WorkloadEntry*> entries;
  for (const datasets::WorkloadEntry& entry : datasets::workloads()) {
    if (!options.family || *options.family == entry.info.family) entries.push_back(&entry);
  }
  if (options.json) {
    json list = json::array();
    for (const datasets::WorkloadEntry* entry : entries) list.push_back(entry_json(*entry, there.at(entry->info.name)));
    print(fmt::format("{}\n", list.dump(2)));
  } else {
    print_list(entries, there);
  }
  return 0;
}

}  // namespace

Command workloads_command() {
  return make_command<Options>(
      {.name = "workloads",
       .summary = "list the workloads, or describe one with its settings and where its data is",
       .examples = {{"kvarena workloads", "all, by family"},
                    {"kvarena workloads longbench/qasper", "source, metrics, settings"},
                    {"kvarena workloads pull longbench", "official files, fetched and checked"}},
       .commands = {workloads_pull_command(), workloads_check_command()}},
      run);
}

}  // namespace kvarena::cli
