// kvarena report: a results database as a page, a table or a text.

#include <fmt/format.h>

#include "harness/cli/commands.h"
#include "harness/cli/page_output.h"
#include "harness/core/error.h"
#include "harness/results/results_reader.h"
#include "reports/equal_bytes.h"
#include "reports/experiment_report.h"

namespace kvarena::cli {
namespace {

struct Options {
  std::filesystem::path database;
  std::string experiment;
  PageOutput output;
  bool all = false;
  std::optional<double> bytes;
  bool allow_unlike_cards = false;

  void declare(OptionSet& o) {
    o.option("database", "FILE", database).help("results database").required();
    o.option("experiment", "NAME", experiment).help("which one").default_text("the only one of the database");
    o.flag("all", all).help("every experiment of the database on one page, as the tables of a paper");
    output.declare(o);
    o.option("bytes", "SHARE", bytes)
        .help("rank all methods at equal resident bytes: of each the setting nearest below this share of full KV's");
    o.flag("allow-unlike-cards", allow_unlike_cards).help("compare rows whose protocol cards differ, and say how");
  }
};

reports::Document document_of(const Options& options) {
  const results::ResultsReader reader(options.database);
  const reports::ReportOptions unlike{.allow_unlike_cards = options.allow_unlike_cards};
  if (!options.all) {
    const reports::ExperimentData data = reports::read_experiment(reader, options.experiment);
    return options.bytes ? reports::equal_bytes_report(data, *options.bytes) : experiment_report(data, unlike);
  }
  if (options.bytes || !options.experiment.empty())
    fail({.place = "--all", .found = "--bytes or --experiment beside it", .expected = "one of them"});
  std::vector<reports::ExperimentData> all;
  for (const results::ExperimentRecord& record : reader.experiments())
    all.push_back(reports::read_experiment(reader, record.experiment));
  if (all.empty()) fail({.place = options.database.string(), .found = "no experiment", .expected = "at least one"});
  return reports::joined_report(options.database.stem().string(), all, unlike);
}

int run(const Options& options) {
  if (options.bytes && !(*options.bytes > 0))
    fail({.place = "--bytes", .found = fmt::format("{}", *options.bytes), .expected = "a share above 0"});
  const reports::Format format = options.output.chosen();
  options.output.write(render(document_of(options), format));
  return 0;
}

}  // namespace

Command report_command() {
  return make_command<Options>(
      {.name = "report",
       .summary = "write a report of a results database",
       .description = "HTML reports are one file that opens from disk without a network.",
       .examples = {{"kvarena report --database quickstart.db --out report.html", "a page"},
                    {"kvarena report --database quickstart.db --format tex", "tables for a paper"},
                    {"kvarena report --database leaderboard.db --bytes 0.29 --out leaderboard.html",
                     "one setting a method, ranked"}}},
      run);
}

}  // namespace kvarena::cli
