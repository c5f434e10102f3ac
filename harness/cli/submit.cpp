// kvarena submit CONFIG: a sweep as a job array of a cluster.

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "harness/cli/commands.h"
#include "harness/cli/worker_setup.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/json_text.h"
#include "harness/core/own_files.h"
#include "harness/core/page.h"
#include "harness/method/plugins.h"

namespace kvarena::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  fs::path config;
  bool slurm = false;
  int64_t shards = 8;
  std::optional<fs::path> folder;
  std::vector<std::string> set;
  std::vector<std::string> models;
  std::optional<int64_t> limit;
  fs::path data_dir;
  std::vector<std::string> sbatch;
  bool dry_run = false;

  void declare(OptionSet& o) {
    o.positional("CONFIG", config).help("the experiment, as for `kvarena run`");
    o.flag("slurm", slurm).help("the cluster speaks Slurm, which is the one there is; required");
    o.option("shards", "N", shards).help("jobs of the array, each with a part of the samples");
    o.option("folder", "FOLDER", folder)
        .help("where scripts, logs and the shards' databases go; all nodes must see it")
        .default_text("the config's name in the working folder");
    o.option("set", "KEY=VALUE", set).help("as for `kvarena run`");
    o.option("model", "NAME", models).help("as for `kvarena run`");
    o.option("limit", "N", limit).help("as for `kvarena run`");
    o.option("data", "FOLDER", data_dir).help("as for `kvarena run`").default_text("as there");
    o.option("sbatch", "OPTION", sbatch).help("a line #SBATCH OPTION for the array: --time=8:00:00, --gres=gpu:1");
    o.flag("dry-run", dry_run).help("write the scripts and submit nothing");
  }
};

std::string quoted(const fs::path& path) { return shell_word(fs::absolute(path).lexically_normal().string()); }

/// The program as people start it, beside the one that runs, with the plugins that were loaded for us.
std::string program() {
  std::string words = quoted(fs::read_symlink("/proc/self/exe").parent_path() / "kvarena");
  for (const LoadedPlugin& plugin : loaded_plugins()) words += " --plugin " + quoted(plugin.path);
  return words;
}

std::string run_words(const Options& options) {
  std::string words = fmt::format("{} run {}", program(), quoted(find_config(options.config)));
  for (const std::string& change : options.set) words += " --set " + shell_word(change);
  for (const std::string& model : options.models) words += " --model " + shell_word(model);
  if (options.limit) words += fmt::format(" --limit {}", *options.limit);
  if (!options.data_dir.empty()) words += " --data " + quoted(options.data_dir);
  return words;
}

/// Throws UserError for what would end a line of sbatch's options, or the quotes around a name there.
void check_directive(const char* place, const std::string& text) {
  const bool harmless = std::ranges::none_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  const bool option = std::string_view(place) == "--sbatch";
  if (harmless && (option || text.find_first_of("\"\\%") == std::string::npos)) return;
  fail({.place = place,
        .found = brief(text),
        .expected = option ? "one line" : "a name without line ends, quotes, backslashes and per cent signs",
        .action = option ? "" : "rename it: Slurm's scripts name it"});
}

/// A shard that is requeued, because its node went away, goes on in its own database.
std::string array_script(const Options& options, const fs::path& folder, const std::string& name) {
  std::string text = fmt::format(
      "#!/bin/bash\n#SBATCH --job-name=\"{0}\"\n#SBATCH --array=0-{1}\n#SBATCH --requeue\n#SBATCH --open-mode=append\n"
      "#SBATCH --output=\"{2}/shard-%a.log\"\n",
      name, options.shards - 1, folder.string());
  for (const std::string& line : options.sbatch) text += fmt::format("#SBATCH {}\n", line);
  // Slurm's own word before it ends a job: stop after the sample in work, and go on when requeued.
  text += "#SBATCH --signal=TERM@60\n";
  text += fmt::format("exec {} --shard \"$SLURM_ARRAY_TASK_ID/{}\" --database {}/shard-\"$SLURM_ARRAY_TASK_ID\".db\n",
                      run_words(options), options.shards, quoted(folder));
  return text;
}

std::string merge_script(const fs::path& folder, const std::string& name, const experiment::OutputSettings& output) {
  const std::string database = quoted(fs::path(output.database));
  std::string text = fmt::format(
      "#!/bin/bash\n#SBATCH --job-name=\"{0}-merge\"\n#SBATCH --output=\"{1}/merge.log\"\nset -e\n"
      "{2} merge {3} {4}/shard-*.db\n",
      name, folder.string(), program(), database, quoted(folder));
  if (!output.report.empty())
    text += fmt::format("{} report --database {} --out {}\n", program(), database, quoted(fs::path(output.report)));
  return text;
}

/// Runs a program and returns its output. Throws UserError when it fails.
std::string output_of(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) fail({.place = command, .found = std::strerror(errno)});
  std::string text;
  std::array<char, 512> piece{};
  while (std::fgets(piece.data(), piece.size(), pipe) != nullptr) text += piece.data();
  const int status = ::pclose(pipe);
  if (status != 0) {
    fail({.place = command,
          .found = fmt::format("that it failed ({})", WIFEXITED(status) ? WEXITSTATUS(status) : status),
          .action = "submit from a machine with Slurm's commands, or use --dry-run and look at the scripts"});
  }
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

int run(const Options& options) {
  if (!options.slurm) fail({.place = "--slurm", .found = "nothing", .expected = "it: there is no other cluster yet"});
  if (options.shards < 1) {
    fail({.place = "--shards", .found = fmt::format("{}", options.shards), .expected = "at least 1"});
  }
  const fs::path file = find_config(options.config);
  const experiment::ExperimentConfig config = config_of(
      {.config_text = read_file(file),
       .config_path = file,
       .overrides = {.set = options.set, .models = options.models, .limit = options.limit, .database = std::nullopt},
       .data_dir = options.data_dir});
  const std::string name = options.config.stem().string();
  const fs::path folder = fs::absolute(options.folder.value_or(name)).lexically_normal();
  check_directive("CONFIG", name);
  check_directive("--folder", folder.string());
  for (const std::string& option : options.sbatch) check_directive("--sbatch", option);
  fs::create_directories(folder);
  const fs::path array = folder / "shards.sh";
  const fs::path merge = folder / "merge.sh";
  write_file(array, array_script(options, folder, name));
  write_file(merge, merge_script(folder, name, config.output));
  print(fmt::format("wrote {} and {}\n", array.string(), merge.string()));
  if (options.dry_run) return 0;
  const std::string job = output_of("sbatch --parsable " + quoted(array));
  // After any end: a shard whose methods failed exits with 1, and its results count all the same.
  const std::string merging =
      output_of(fmt::format("sbatch --parsable --dependency=afterany:{} {}", shell_word(job), quoted(merge)));
  print(fmt::format("submitted {} shards as job {}; job {} merges them into {}{}\n", options.shards, job, merging,
                    config.output.database, config.output.report.empty() ? "" : " and writes " + config.output.report));
  return 0;
}

}  // namespace

Command submit_command() {
  return make_command<Options>(
      {.name = "submit",
       .summary = "run a config as a job array of a cluster",
       .description = "Writes a script for the array and one that merges the shards and makes the report, and submits "
                      "both to Slurm; "
                      "a job whose node goes away is requeued and goes on where it was.",
       .examples = {{"kvarena submit configs/quickstart.json --slurm --shards 16",
                     "sixteen jobs, a merge and a report"},
                    {"kvarena submit configs/quickstart.json --slurm --sbatch=--gres=gpu:1 --dry-run",
                     "only the scripts"}}},
      run);
}

}  // namespace kvarena::cli
