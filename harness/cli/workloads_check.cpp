// kvarena workloads check: whether the data files at hand are the official ones.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "datasets/official.h"
#include "harness/cli/commands.h"
#include "harness/cli/workload_choice.h"
#include "harness/core/page.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;

struct Options {
  std::vector<std::string> names;
  std::filesystem::path data_dir;
  bool as_json = false;

  void declare(OptionSet& o) {
    o.positional("WORKLOAD", names).help("workloads or families; without one all that have files");
    o.option("data", "FOLDER", data_dir)
        .help("where official data files are looked for")
        .default_text("$KVARENA_DATA, or data in KVARENA_HOME");
    o.flag("json", as_json).help("write JSON");
  }
};

json row_json(const datasets::WorkloadInfo& info, const datasets::FileCheck& check) {
  return {{"name", info.name},        {"state", std::string(name(check.state))},
          {"path", check.path},       {"sha256", check.sha256},
          {"samples", check.samples}, {"official_samples", info.samples},
          {"detail", check.detail},   {"source", info.source}};
}

int run(const Options& options) {
  json list = json::array();
  std::vector<std::vector<std::string>> rows;
  bool all_right = true;
  for (const datasets::WorkloadEntry* entry : chosen_workloads(options.names)) {
    const datasets::FileCheck check = datasets::check_data(*entry, options.data_dir);
    if (check.state == datasets::FileState::generated && options.names.empty()) continue;
    all_right = all_right && check.state != datasets::FileState::differs;
    list.push_back(row_json(entry->info, check));
    rows.push_back({entry->info.name, std::string(name(check.state)),
                    check.path.empty() ? "" : fmt::format("{} of {}", check.samples, entry->info.samples),
                    check.detail.empty() ? check.path.string() : check.detail});
  }
  if (options.as_json) {
    print(fmt::format("{}\n", list.dump(2)));
  } else {
    print(Page().columns(rows));
  }
  return all_right ? 0 : 1;
}

}  // namespace

Command workloads_check_command() {
  return make_command<Options>(
      {.name = "check",
       .summary = "compare data files with the official ones, by SHA-256 and number of samples",
       .examples = {{"kvarena workloads check", "all that have files"},
                    {"kvarena workloads check gsm8k bfcl", "a workload and a family; exit code 1 where one differs"}}},
      run);
}

}  // namespace kvarena::cli
