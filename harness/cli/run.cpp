// kvarena run CONFIG: from a config file to rows in a results database.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "harness/cli/commands.h"
#include "harness/cli/invented_text.h"
#include "harness/cli/page_output.h"
#include "harness/cli/worker_setup.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/home.h"
#include "harness/core/own_files.h"
#include "harness/core/page.h"
#include "harness/evaluate/model_evaluator.h"
#include "harness/experiment/config.h"
#include "harness/experiment/expected_use.h"
#include "harness/experiment/papers.h"
#include "harness/experiment/plan.h"
#include "harness/experiment/runner.h"
#include "harness/experiment/workers/worker_evaluator.h"
#include "harness/method/plugins.h"
#include "harness/results/left_out.h"
#include "kernels/limits/limits.h"
#include "reports/experiment_report.h"

namespace kvarena::cli {
namespace {

using experiment::ExperimentConfig;
using experiment::Plan;

constexpr int kInterrupted = 130;         // as shells report a Ctrl-C
constexpr int64_t kTimeLimit = 2 * 3600;  // seconds: beyond what any sample of the papers takes on two cores

struct Options {
  std::filesystem::path config;
  bool dry_run = false;
  std::vector<std::string> set;
  std::vector<std::string> models;
  std::optional<int64_t> limit;
  std::optional<std::string> database;
  std::filesystem::path data_dir;
  std::optional<std::string> shard;
  bool retry_failed = false;
  int64_t time_limit_s = kTimeLimit;
  std::optional<int64_t> memory_limit_mib;
  bool in_process = false;
  bool quiet = false;
  bool verbose = false;
  std::optional<std::filesystem::path> log;

  void declare(OptionSet& o) {
    o.positional("CONFIG", config)
        .help("the experiment, a JSON file such as configs/quickstart.json; `kvarena schema` says what it may hold");
    o.flag("dry-run", dry_run).help("show what would be evaluated, how much of it is done, what the rest may take");
    o.option("set", "KEY=VALUE", set)
        .help("change the config: engine.seed=3, methods[1].keep=0.2, methods.NAME.keep=0.2");
    o.option("model", "NAME", models)
        .help("instead of the config's models; a path or a name on Hugging Face's hub too");
    o.option("limit", "N", limit).help("at most so many samples of each workload");
    o.option("database", "FILE", database).help("instead of the config's output.database");
    o.option("data", "FOLDER", data_dir)
        .help("where official data files are")
        .default_text("$KVARENA_DATA, or the small project-made samples");
    o.option("shard", "I/N", shard)
        .help("only part I of N, from 0, into a database of its own; `kvarena merge` makes one of all");
    o.flag("retry-failed", retry_failed).help("evaluate cells again that failed in an earlier run");
    o.option("time-limit", "SECONDS", time_limit_s)
        .help("a sample under all methods may take so long; then each is evaluated alone, and may again; 0 = no limit");
    o.option("memory-limit", "MIB", memory_limit_mib)
        .help("a worker that holds more, beside mapped files, is ended")
        .default_text("what the machine has");
    o.flag("in-process", in_process)
        .help("evaluate in this process, for a debugger: a method that crashes then ends the run");
    o.flag("quiet", quiet).help("no progress, only warnings");
    o.flag("verbose", verbose).help("say each thing that happens: models loaded, samples evaluated, cells ended");
    o.option("log", "FILE", log)
        .help("the same as lines of JSON with times and how much is done, appended: for programs that watch");
  }
};

WorkerSetup setup_of(const Options& options) {
  const std::filesystem::path config = find_config(options.config);
  return {
      .config_text = read_file(config),
      .config_path = config,
      .overrides = {.set = options.set, .models = options.models, .limit = options.limit, .database = options.database},
      .data_dir = options.data_dir};
}

ExperimentConfig read_config(const WorkerSetup& setup) {
  ExperimentConfig config = config_of(setup);
  for (const std::string& warning : config.warnings) fmt::print(stderr, "warning: {}\n", warning);
  return config;
}

/// Says it where numbers will be of project-made samples, and how to get a benchmark's own.
void warn_of_invented_data(const Plan& plan) {
  const std::vector<results::InventedData> invented = plan.invented();
  if (invented.empty()) return;
  fmt::print(stderr,
             "warning: {}; `kvarena workloads NAME` says how to fetch the official file, $KVARENA_DATA or --data where "
             "it lies\n",
             invented_text(invented));
}

/// Says which cells lack samples that their model cannot read.
void warn_of_left_out_samples(const Plan& plan) {
  for (const experiment::CellGroup& group : plan.groups) {
    const std::string left_out = results::left_out_text(group.cells.front().record);
    if (left_out.empty()) continue;
    fmt::print(stderr, "warning: {}, {}, {}: samples left out: {}\n", group.model->label, group.workload->label,
               results::name(group.kind), left_out);
  }
}

/// Says it where a table of a paper, whose speed needs a GPU, is about to run without one.
void warn_of_cpu(const ExperimentConfig& config) {
  const auto item = experiment::find_item(own_file("configs/papers"), config.path);
  if (!item || !item->gpu) return;
  for (const experiment::ModelEntry& model : config.models) {
    if (model.device != "cpu") continue;
    fmt::print(stderr,
               "warning: the speed of {} needs a GPU, and {} runs on the CPU: its times are no reproduction; "
               "--set models.{}.device=cuda runs it on one\n",
               config.name, model.label, model.label);
  }
}

int show_plan(const Plan& plan) {
  constexpr double kProbeSeconds = 0.2;
  const std::filesystem::path database = plan.config->output.database;
  std::optional<results::ResultsReader> there;
  if (std::filesystem::exists(database)) there.emplace(database);
  const results::ResultsReader* done = there ? &*there : nullptr;
  print(experiment::describe_plan(
      plan, done, experiment::expected_use(plan, done, kernels::measure_read_bandwidth(kProbeSeconds))));
  return 0;
}

/// Cells that failed cost their own rows, not the run; they are told, with their reasons, and the exit code is 1.
void print_failures(const results::ResultsStore& results, const std::string& experiment) {
  bool ended_workers = false;
  for (const results::CellRow& row : results.read().cells(experiment)) {
    if (row.state != results::CellState::failed) continue;
    fmt::print(stderr, "kvarena: {}, {}, {}: failed: {}\n", row.cell.model, row.cell.workload, row.cell.method,
               row.reason);
    ended_workers = ended_workers || !(row.failure_log.empty() || row.failure_log.starts_with("Traceback"));
  }
  if (ended_workers) {
    fmt::print(stderr,
               "kvarena: to see where a method ends its worker, add --in-process --retry-failed to the command and run "
               "it in a debugger (gdb --args kvarena run ...)\n");
  }
}

std::string outcome(const experiment::RunSummary& summary) {
  std::string text = fmt::format("{} evaluated, {} were there already", summary.evaluated, summary.already_done);
  if (summary.failed_cells > 0) text += fmt::format(", {} cells failed", summary.failed_cells);
  if (summary.missing_cells > 0) text += fmt::format(", {} cells lack their method's weights", summary.missing_cells);
  if (summary.inactive_cells > 0)
    text += fmt::format(", {} cells inactive (the method never acted)", summary.inactive_cells);
  return text;
}

/// Evaluates in worker processes; `here` answers what needs no weights.
experiment::WorkerEvaluator worker_evaluator(evaluate::ModelEvaluator& here, const Options& options,
                                             const WorkerSetup& setup, Progress& progress, EventLog& log) {
  const experiment::Limits limits{.seconds = static_cast<double>(options.time_limit_s),
                                  .memory_bytes = options.memory_limit_mib.value_or(0) * (int64_t{1} << 20U)};
  std::vector<std::string> words = {"/proc/self/exe"};  // the running program, even when its file was replaced
  for (const LoadedPlugin& plugin : loaded_plugins()) words.insert(words.end(), {"--plugin", plugin.path.string()});
  words.emplace_back("worker");
  return {here,
          {.words = std::move(words),
           .setup = setup_json(setup),
           .limits = limits,
           .on_line = [&progress, &log, verbose = options.verbose](const std::string& line) {
             if (!verbose) progress.message(line);  // verbose shows every event
             log.record("worker_said", {{"line", line}});
           }}};
}

/// Says what came out as the report's first sentences do, and writes the page that the config asks for.
void tell_results(const ExperimentConfig& config, const results::ResultsReader& results, bool quiet) {
  if (quiet && config.output.report.empty()) return;
  const reports::Document page = reports::experiment_report(reports::read_experiment(results, config.name));
  const auto summary = std::ranges::find_if(
      page.sections, [](const reports::Section& section) { return section.id.starts_with("summary"); });
  if (!quiet && summary != page.sections.end()) {
    constexpr size_t kMostSentences = 3;
    const std::vector<std::string>& sentences = summary->paragraphs;
    for (const std::string& sentence : std::span(sentences).first(std::min(kMostSentences, sentences.size()))) {
      print(Page().wrapped(sentence).text("\n"));
    }
  }
  const PageOutput output{.format = {}, .out = config.output.report};
  if (!config.output.report.empty()) return output.write(render(page, output.chosen()));
  if (!quiet) print(fmt::format("kvarena report --database {} --out report.html shows all\n", config.output.database));
}

void check_limits(const Options& options) {
  const auto refuse = [](const char* name, int64_t value) {
    if (value < 0) fail({.place = name, .found = fmt::format("{}", value), .expected = "0 or more"});
  };
  refuse("--time-limit", options.time_limit_s);
  refuse("--memory-limit", options.memory_limit_mib.value_or(0));
}

int run(const Options& options) {
  check_limits(options);
  const WorkerSetup setup = setup_of(options);
  const ExperimentConfig config = read_config(setup);
  if (!config.output.report.empty()) (void)reports::parse_format(config.output.report);
  experiment::require_models(config, kvarena_home());
  evaluate::ModelEvaluator here = model_evaluator(config, setup);
  const Plan plan = experiment::make_plan(
      config, here, options.shard ? experiment::parse_shard(*options.shard, "--shard") : experiment::Shard());
  warn_of_cpu(config);
  warn_of_invented_data(plan);
  warn_of_left_out_samples(plan);
  if (options.dry_run) return show_plan(plan);

  results::ResultsStore results = results::ResultsStore::open_or_create(config.output.database);
  Progress progress({.style = options.quiet ? ProgressOptions::Style::quiet : ProgressOptions::Style::automatic});
  EventLog log({.file = options.log,
                .on_text = options.verbose ? [&progress](const std::string& line) { progress.message(line); }
                                           : std::function<void(const std::string&)>()});
  experiment::WorkerEvaluator there = worker_evaluator(here, options, setup, progress, log);
  experiment::Evaluator& evaluator = options.in_process ? static_cast<experiment::Evaluator&>(here) : there;
  const experiment::InterruptGuard guard;
  const experiment::RunSummary summary =
      experiment::run_plan(plan, evaluator, results, progress, experiment::InterruptGuard::flag(),
                           {.retry_failed = options.retry_failed, .log = &log});

  print(fmt::format("{}: {}; {}\n", config.output.database, summary.run_id, outcome(summary)));
  if (summary.failed_cells > 0) print_failures(results, config.name);
  if (summary.interrupted) {
    fmt::print(stderr, "kvarena: interrupted; the same command goes on where this one stopped\n");
    return kInterrupted;
  }
  if (!options.shard) tell_results(config, results.read(), options.quiet);  // a shard's numbers are no results yet
  return summary.failed_cells == 0 ? 0 : 1;
}

}  // namespace

Command run_command() {
  return make_command<Options>(
      {.name = "run",
       .summary = "evaluate methods as a config says, into a results database",
       .description =
           "A killed run goes on where it stopped when the same command is given again. Models live in worker "
           "processes: a method that fails, crashes, hangs or takes all memory costs its own rows; the exit code is "
           "then 1.",
       .examples = {{"kvarena run configs/quickstart.json", "everything it asks for"},
                    {"kvarena run configs/quickstart.json --dry-run", "what it would do"},
                    {"kvarena run configs/quickstart.json --limit 2 --set engine.seed=3", "a small part, changed"}}},
      run);
}

}  // namespace kvarena::cli
