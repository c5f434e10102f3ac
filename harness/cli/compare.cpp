// kvarena compare BEFORE AFTER: what changed between two runs, and whether it is more than noise.

#include "reports/compare.h"

#include "harness/cli/commands.h"
#include "harness/core/files.h"
#include "harness/core/page.h"
#include "harness/results/results_reader.h"

namespace kvarena::cli {
namespace {

struct Options {
  std::filesystem::path before;
  std::filesystem::path after;
  std::string experiment;
  double margin = 0;
  std::string format = "md";
  std::optional<std::filesystem::path> out;
  bool allow_unlike_cards = false;

  void declare(OptionSet& o) {
    o.positional("BEFORE", before).help("results database");
    o.positional("AFTER", after).help("results database");
    o.option("experiment", "NAME", experiment).help("which one").default_text("the only one of each database");
    o.option("margin", "POINTS", margin)
        .help("what a cell may become worse by, in the unit of its table: points of a percentage for scores");
    o.option("format", "FORMAT", format).help("html, md, tex or csv");
    o.option("out", "FILE", out).help("where to write").default_text("standard output");
    o.flag("allow-unlike-cards", allow_unlike_cards).help("compare rows whose protocol cards differ");
  }
};

int run(const Options& options) {
  const reports::Format format = reports::parse_format(options.out ? options.out->string() : options.format);
  const auto read = [&](const std::filesystem::path& file) {
    return reports::read_experiment(results::ResultsReader(file), options.experiment);
  };
  const reports::Comparison comparison =
      reports::compare(read(options.before), read(options.after), options.margin, options.allow_unlike_cards);
  const std::string text = render(comparison.document, format);
  if (options.out) {
    write_file(*options.out, text);
  } else {
    print(text);
  }
  return comparison.regressions == 0 ? 0 : 1;
}

}  // namespace

Command compare_command() {
  return make_command<Options>(
      {.name = "compare",
       .summary = "compare two results databases, sample by sample",
       .description = "Exits with 1 when a method is worse on a workload, beyond noise and by more than the margin.",
       .examples = {{"kvarena compare main.db branch.db --margin 2", "for continuous integration"}}},
      run);
}

}  // namespace kvarena::cli
