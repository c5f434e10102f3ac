// kvarena report: a results database as a page, a table or a text.

#include <fmt/format.h>

#include "harness/cli/commands.h"
#include "harness/cli/terminal.h"
#include "harness/core/files.h"
#include "harness/store/results_reader.h"
#include "reports/experiment_report.h"

namespace kvarena::cli {
namespace {

struct Options {
  std::filesystem::path database;
  std::string experiment;
  std::string format;
  std::optional<std::filesystem::path> out;
  bool allow_unlike_cards = false;

  void declare(OptionSet& o) {
    o.option("database", "FILE", database).help("results database").required();
    o.option("experiment", "NAME", experiment).help("which one").default_text("the only one of the database");
    o.option("out", "FILE", out).help("where to write").default_text("standard output");
    o.option("format", "FORMAT", format).help("html, md, tex or csv").default_text("by the ending of --out, else md");
    o.flag("allow-unlike-cards", allow_unlike_cards).help("compare rows whose protocol cards differ, and say how");
  }
};

int run(const Options& options) {
  const std::string chosen = !options.format.empty() ? options.format : options.out ? options.out->string() : "md";
  const reports::Format format = reports::parse_format(chosen);
  const store::ResultsReader reader(options.database);
  const reports::ExperimentData data = reports::read_experiment(reader, options.experiment);
  const std::string text = render(experiment_report(data, {.allow_unlike_cards = options.allow_unlike_cards}), format);
  if (options.out) {
    write_file(*options.out, text);
    fmt::print(stderr, "{}\n", options.out->string());
  } else {
    print(text);
  }
  return 0;
}

}  // namespace

Command report_command() {
  return make_command<Options>(
      {.name = "report",
       .summary = "write a report of a results database",
       .description = "HTML reports are one file that opens from disk without a network.",
       .examples = {{"kvarena report --database quickstart.db --out report.html", "a page"},
                    {"kvarena report --database quickstart.db --format tex", "tables for a paper"}}},
      run);
}

}  // namespace kvarena::cli
