// kvarena judge DATABASE: marks of a judge model for the answers in a results database.

#include "harness/evaluate/judge.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/cli/commands.h"
#include "harness/cli/judge_options.h"
#include "harness/core/error.h"
#include "harness/core/page.h"
#include "harness/core/progress.h"
#include "harness/evaluate/model_evaluator.h"

namespace kvarena::cli {
namespace {

struct Options {
  std::filesystem::path database;
  std::string experiment;
  JudgeOptions judge;
  bool replace = false;
  bool quiet = false;

  void declare(OptionSet& o) {
    o.positional("DATABASE", database).help("results database of `kvarena run`");
    o.option("experiment", "NAME", experiment).help("which one").default_text("all of the database");
    judge.declare(o);
    o.flag("replace", replace).help("take another judge's marks away and ask anew");
    o.flag("quiet", quiet).help("no progress");
  }
};

/// The experiments that are asked for, of those that there are.
std::vector<std::string> chosen(const results::ResultsReader& results, const std::string& wanted) {
  std::vector<std::string> names;
  for (const results::ExperimentRecord& record : results.experiments()) names.push_back(record.experiment);
  if (wanted.empty()) return names;
  if (std::ranges::find(names, wanted) != names.end()) return {wanted};
  fail({.place = "--experiment",
        .found = fmt::format("\"{}\"", wanted),
        .expected = "one of the database",
        .nearest = nearest_name(wanted, names)});
}

int run(const Options& options) {
  const evaluate::EndpointSettings judge = options.judge.settings();
  if (!std::filesystem::exists(options.database)) {
    fail({.place = options.database.string(), .found = "no such file", .expected = "a results database"});
  }
  results::ResultsStore results = results::ResultsStore::open_or_create(options.database);
  results.define_metrics(evaluate::metric_definitions());
  evaluate::JudgingSummary all;
  for (const std::string& experiment : chosen(results.read(), options.experiment)) {
    Progress progress({.style = options.quiet ? ProgressOptions::Style::quiet : ProgressOptions::Style::automatic});
    const evaluate::JudgingSummary summary =
        evaluate::judge_answers(results, experiment, {.judge = judge, .replace = options.replace}, progress);
    all.marked += summary.marked;
    all.unread += summary.unread;
    all.use += summary.use;
  }
  print_use(all.use, judge.model);
  print(fmt::format("{}: {} answers marked by {}\n", options.database.string(), all.marked, judge.model));
  if (all.unread > 0) {
    fmt::print(stderr, "warning: {} answers have no marks, because no words of the judge about them could be read\n",
               all.unread);
  }
  return 0;
}

}  // namespace

Command judge_command() {
  return make_command<Options>(
      {.name = "judge",
       .summary = "ask a judge model about the answers in a results database",
       .description =
           "Writes marks under the metrics that need a judge, of which `run` scores none. Every answer is written when "
           "it comes: a killed command goes on where it stopped when it is given again. Marks of one experiment are of "
           "one judge and one question, which reports name.",
       .examples = {{"kvarena judge results.db --judge-url http://127.0.0.1:8000/v1 --judge-model NAME",
                     "marks for every answer that lacks them"},
                    {"kvarena judge results.db --judge-url http://127.0.0.1:8000/v1 --judge-model OTHER --replace",
                     "another judge's instead"}}},
      run);
}

}  // namespace kvarena::cli
