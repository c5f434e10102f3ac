// kvarena doctor: is everything there that a run needs?

#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "datasets/data_files.h"
#include "harness/cli/commands.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/home.h"
#include "harness/core/json_text.h"
#include "harness/core/own_files.h"
#include "harness/core/page.h"
#include "harness/core/terminal.h"
#include "harness/experiment/provenance.h"
#include "harness/model/open_model.h"
#include "harness/results/results_reader.h"
#include "harness/results/soundness.h"
#include "kernels/common/cpu_path.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;

constexpr uintmax_t kLittleSpace = uintmax_t{1} << 30U;  // bytes: a model and a database of results fit into less

struct Options {
  std::string model = kDefaultModel;
  std::optional<std::filesystem::path> database;
  bool json = false;

  void declare(OptionSet& o) {
    o.option("model", "NAME|PATH", model).help("the model to look at");
    o.option("database", "FILE", database).help("also check every page and row of this results database");
    o.flag("json", json).help("write JSON");
  }
};

struct Check {
  std::string name;
  bool good = true;
  std::string found;
};

/// Result of `look`, or why it failed: one check never hides the next.
Check checked(const std::string& name, const std::function<std::string()>& look) {
  try {
    return {name, true, look()};
  } catch (const std::exception& error) {
    return {name, false, error.what()};
  }
}

std::string cpu_path() {
  std::string available;
  for (const kernels::CpuPath path : kernels::available_cpu_paths()) {
    available += (available.empty() ? "" : ", ") + std::string(kernels::name_of(path));
  }
  return fmt::format("{} (of {})", kernels::name_of(kernels::active_cpu_path()), available);
}

std::string library_versions(const std::string& libraries_json) {
  const json libraries = json::parse(libraries_json);
  std::string text;
  for (const auto& [name, version] : libraries.items()) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, version.get<std::string>());
  }
  return text;
}

std::string home_folder() {
  const std::filesystem::path home = kvarena_home();
  if (!std::filesystem::is_directory(home)) {
    fail({.place = home.string(), .found = "no folder", .action = setup_command() + " makes and fills it"});
  }
  return home.string();
}

std::string disk_space(const std::filesystem::path& folder) {
  const auto free = std::filesystem::space(folder).available;
  std::string text = fmt::format("{} free in {}", bytes_text(static_cast<int64_t>(free)), folder.string());
  if (free < kLittleSpace) throw UserError(text + ", which may not be enough for results");
  return text;
}

std::string model_summary(const std::string& model) {
  const std::filesystem::path path = find_model(model);
  const OpenedModel opened = open_model(path);
  return fmt::format("{}: {}, {} layers, {} of {} heads hold KV, window {}, vocabulary {}, template {}", path.string(),
                     opened.config.architecture, opened.config.layers, opened.config.kv_heads, opened.config.q_heads,
                     opened.config.max_position, opened.tokenizer->vocab_size(), opened.chat_template.name());
}

/// Counts the workloads by where their samples come from.
std::string data_summary() {
  std::map<std::string, int64_t> workloads;  // by status
  for (const datasets::WorkloadListing& listing : datasets::list_workloads({})) ++workloads[listing.status];
  const char* folder = std::getenv(datasets::kDataVariable);
  std::string text =
      fmt::format("{}; workloads: ", folder == nullptr || *folder == '\0' ? "KVARENA_DATA is not set" : folder);
  for (const auto& [status, count] : workloads)
    text += fmt::format("{}{} {}", text.ends_with(": ") ? "" : ", ", count, status);
  return text;
}

std::string database_summary(const std::filesystem::path& path) {
  const std::vector<std::string> faults = results::find_faults(path);
  if (!faults.empty()) {
    fail({.place = path.string(),
          .found = fmt::format("{}", fmt::join(faults, "; ")),
          .expected = "a sound results database",
          .action = "restore a copy, or save what can be read with `sqlite3 FILE .recover`"});
  }
  const results::ResultsReader reader(path);
  return fmt::format("{}: {} experiments, content {}", path.string(), reader.experiments().size(),
                     reader.content_digest().substr(0, 12));
}

std::vector<Check> all_checks(const Options& options) {
  const results::RunRecord made = experiment::collect_provenance();
  const json build = json::parse(made.build_json);
  std::vector<Check> checks;
  checks.push_back({"program", true,
                    fmt::format("{} {}, {}, {}", KVARENA_VERSION, made.git_revision, build.value("compiler", ""),
                                build.value("build_type", ""))});
  checks.push_back({"machine", true, fmt::format("{}, {} threads", made.cpu_model, made.cpu_threads)});
  checks.push_back(checked("cpu path", cpu_path));
  checks.push_back({"gpu", true, made.gpu.empty() ? "none, and none is needed" : made.gpu});
  checks.push_back({"libraries", true, library_versions(made.libraries_json)});
  checks.push_back(checked("KVARENA_HOME", home_folder));
  checks.push_back(checked("disk", [] { return disk_space(std::filesystem::current_path()); }));
  checks.push_back(checked("model", [&] { return model_summary(options.model); }));
  checks.push_back(checked("data", data_summary));
  if (options.database) checks.push_back(checked("database", [&] { return database_summary(*options.database); }));
  return checks;
}

int run(const Options& options) {
  const std::vector<Check> checks = all_checks(options);
  bool good = true;
  json list = json::array();
  std::vector<std::vector<std::string>> rows;
  for (const Check& check : checks) {
    good = good && check.good;
    list.push_back({{"check", check.name}, {"good", check.good}, {"found", check.found}});
    rows.push_back({check.good ? "ok" : "BAD", check.name, check.found});
  }
  if (options.json) {
    print(fmt::format("{}\n", json_text(list, 2)));
  } else {
    print(Page().columns(rows));
  }
  return good ? 0 : 1;
}

}  // namespace

Command doctor_command() {
  return make_command<Options>({.name = "doctor",
                                .summary = "check the set-up: processor, libraries, models, data, disk, database",
                                .examples = {{"kvarena doctor", "exit code 1 when something is missing"},
                                             {"kvarena doctor --database results.db", "and is this database sound?"}}},
                               run);
}

}  // namespace kvarena::cli
