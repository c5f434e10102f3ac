// kvarena workloads pull: official data files, fetched, checked, and only then put where workloads look for them.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "datasets/data_files.h"
#include "datasets/official.h"
#include "harness/cli/commands.h"
#include "harness/cli/spawn.h"
#include "harness/cli/workload_choice.h"
#include "harness/core/error.h"
#include "harness/core/page.h"

namespace kvarena::cli {
namespace {

namespace fs = std::filesystem;
using datasets::FileState;
using datasets::WorkloadEntry;

struct Options {
  std::vector<std::string> names;
  fs::path data_dir;

  void declare(OptionSet& o) {
    o.positional("WORKLOAD", names).help("a workload, or a family of them: longbench").required();
    o.option("data", "FOLDER", data_dir)
        .help("where to put them")
        .default_text("$KVARENA_DATA, or data in KVARENA_HOME");
  }
};

/// A folder beside the data, gone with what is left in it at the end.
class Staging {
 public:
  explicit Staging(const fs::path& root) : path_(root / fmt::format(".pull-{}", ::getpid())) {
    std::error_code error;
    if (!fs::create_directories(path_, error) && error) {
      fail({.place = path_.string(), .found = error.message(), .expected = "a folder that can be made"});
    }
  }
  ~Staging() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// Runs a documented download with `staging` as the data folder, whose name the command need not quote.
void download(const std::string& command, const fs::path& staging) {
  fmt::print(stderr, "{}\n", command);
  const int code =
      spawn({.words = {"sh", "-ec", command}, .environment = {{datasets::kDataVariable, "."}}, .folder = staging});
  if (code == 0) return;
  fail({.place = fmt::format("`{}`", command),
        .found = fmt::format("exit code {}", code),
        .expected = "0",
        .action = code == 127 ? "install the program that it did not find" : "its own words are above"});
}

/// The workload's fetched file against the official one. Throws UserError where it is another.
datasets::FileCheck checked(const WorkloadEntry& entry, const fs::path& staging) {
  datasets::FileCheck check = datasets::check_data(entry, staging);
  if (check.state == FileState::official || check.state == FileState::as_many) return check;
  fail({.place = fmt::format("{} from {}", entry.info.name, entry.info.source),
        .found = check.state == FileState::missing ? "no file of its name in what was fetched" : check.detail,
        .expected = "the official file",
        .action = "nothing was kept; the source may have changed"});
}

/// Moves files below `from`, its own ones excepted, to the same places below `to`.
void move_files(const fs::path& from, const fs::path& to) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(from)) {
    if (entry.is_regular_file() && entry.path().parent_path() != from) files.push_back(entry.path());
  }
  for (const fs::path& file : files) {
    const fs::path target = to / fs::relative(file, from);
    fs::create_directories(target.parent_path());
    fs::rename(file, target);
  }
}

int run(const Options& options) {
  const fs::path root = datasets::official_dir(options.data_dir);
  std::vector<const WorkloadEntry*> absent;
  for (const WorkloadEntry* entry : chosen_workloads(options.names)) {
    const auto file = datasets::find_data_file(entry->info, root);
    if (!file && !entry->info.files.empty()) {
      absent.push_back(entry);
    } else {
      print(fmt::format("{}: {}\n", entry->info.name, file ? file->path.string() : "generated, needs no file"));
    }
  }
  while (!absent.empty()) {
    const std::string command = absent.front()->info.download;
    const auto rest = std::ranges::stable_partition(
        absent, [&](const WorkloadEntry* entry) { return entry->info.download == command; });
    const std::vector<const WorkloadEntry*> fetched(absent.begin(), rest.begin());
    const Staging staging(root);
    download(command, staging.path());
    std::string said;
    for (const WorkloadEntry* entry : fetched) {
      const datasets::FileCheck check = checked(*entry, staging.path());
      said += fmt::format("{}: {} samples, {}\n", entry->info.name, check.samples, name(check.state));
    }
    move_files(staging.path(), root);
    print(said);
    absent.erase(absent.begin(), rest.begin());
  }
  return 0;
}

}  // namespace

Command workloads_pull_command() {
  return make_command<Options>({.name = "pull",
                                .summary = "fetch official data files to where workloads look for them",
                                .examples = {{"kvarena workloads pull gsm8k", "one file, checked against its SHA-256"},
                                             {"kvarena workloads pull longbench", "a family"}}},
                               run);
}

}  // namespace kvarena::cli
