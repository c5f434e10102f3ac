// kvarena history FILE...: one experiment in several databases, over time.

#include "reports/history.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/cli/commands.h"
#include "harness/cli/terminal.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/store/results_reader.h"

namespace kvarena::cli {
namespace {

struct Options {
  std::vector<std::filesystem::path> databases;
  std::string experiment;
  std::string format;
  std::optional<std::filesystem::path> out;

  void declare(OptionSet& o) {
    o.positional("DATABASE", databases).help("results databases; shown by when their last run began");
    o.option("experiment", "NAME", experiment).help("which one").default_text("the only one of each database");
    o.option("out", "FILE", out).help("where to write").default_text("standard output");
    o.option("format", "FORMAT", format).help("html, md, tex or csv").default_text("by the ending of --out, else md");
  }
};

/// "2026-11-02 main": the day of the last run and the file's name.
std::string name_of(const std::filesystem::path& file, const reports::ExperimentData& data) {
  const std::string stem = file.stem().string();
  return data.runs.empty() ? stem : fmt::format("{} {}", data.runs.back().started_at.substr(0, 10), stem);
}

int run(const Options& options) {
  const std::string chosen = !options.format.empty() ? options.format : options.out ? options.out->string() : "md";
  const reports::Format format = reports::parse_format(chosen);
  std::vector<reports::NamedRun> runs;
  for (const std::filesystem::path& file : options.databases) {
    reports::ExperimentData data = reports::read_experiment(store::ResultsReader(file), options.experiment);
    std::string name = name_of(file, data);
    runs.push_back({.name = std::move(name), .data = std::move(data)});
  }
  std::ranges::stable_sort(runs, {}, [](const reports::NamedRun& run) {
    return run.data.runs.empty() ? std::string() : run.data.runs.back().started_at;
  });
  const std::string text = render(reports::history(runs), format);
  if (options.out) {
    write_file(*options.out, text);
    fmt::print(stderr, "{}\n", options.out->string());
  } else {
    print(text);
  }
  return 0;
}

}  // namespace

Command history_command() {
  return make_command<Options>({.name = "history",
                                .summary = "how an experiment's scores went over several results databases",
                                .description = "Each number is tested against the run before it, sample by sample.",
                                .examples = {{"kvarena history monday.db tuesday.db today.db --out history.html",
                                              "a page with a line a method"}}},
                               run);
}

}  // namespace kvarena::cli
