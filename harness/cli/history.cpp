// kvarena history FILE...: one experiment in several databases, over time.

#include "reports/history.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/cli/commands.h"
#include "harness/cli/page_output.h"
#include "harness/core/error.h"
#include "harness/results/results_reader.h"

namespace kvarena::cli {
namespace {

struct Options {
  std::vector<std::filesystem::path> databases;
  std::string experiment;
  PageOutput output;

  void declare(OptionSet& o) {
    o.positional("DATABASE", databases).help("results databases; shown by when their last run began");
    o.option("experiment", "NAME", experiment).help("which one").default_text("the only one of each database");
    output.declare(o);
  }
};

/// "2026-11-02 main": the day of the last run and the file's name.
std::string name_of(const std::filesystem::path& file, const reports::ExperimentData& data) {
  const std::string stem = file.stem().string();
  return data.runs.empty() ? stem : fmt::format("{} {}", data.runs.back().started_at.substr(0, 10), stem);
}

int run(const Options& options) {
  const reports::Format format = options.output.chosen();
  std::vector<reports::NamedRun> runs;
  for (const std::filesystem::path& file : options.databases) {
    reports::ExperimentData data = reports::read_run(results::ResultsReader(file), options.experiment);
    std::string name = name_of(file, data);
    runs.push_back({.name = std::move(name), .data = std::move(data)});
  }
  std::ranges::stable_sort(runs, {}, [](const reports::NamedRun& run) {
    return run.data.runs.empty() ? std::string() : run.data.runs.back().started_at;
  });
  reports::Document document = reports::history(runs);
  reports::mark_invented(document, runs.back().data.invented);
  options.output.write(render(document, format));
  return 0;
}

}  // namespace

Command history_command() {
  return make_command<Options>(
      {.name = "history",
       .summary = "how an experiment's scores went over several results databases",
       .description =
           "Each number that differs from the run before it is marked: runs of equal settings are deterministic.",
       .examples = {{"kvarena history monday.db tuesday.db today.db --out history.html",
                     "a page with a line a method"}}},
      run);
}

}  // namespace kvarena::cli
