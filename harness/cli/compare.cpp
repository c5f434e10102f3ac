// kvarena compare BEFORE AFTER: what changed between two runs of equal settings.

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
  reports::CompareOptions compared;
  std::string format = "md";
  std::optional<std::filesystem::path> out;

  void declare(OptionSet& o) {
    o.positional("BEFORE", before).help("results database");
    o.positional("AFTER", after).help("results database");
    o.option("experiment", "NAME", experiment).help("which one").default_text("the only one of each database");
    o.option("margin", "POINTS", compared.margin)
        .help(
            "a mean that moves by no more is neither better nor worse, in the unit of its table: points of a "
            "percentage for scores");
    o.option("fail-on-drop", "POINTS", compared.fail_on_drop)
        .help("exit with 1 when a mean gets worse by more, whatever the number of samples")
        .default_text("the margin");
    o.option("format", "FORMAT", format).help("html, md, tex or csv");
    o.option("out", "FILE", out).help("where to write").default_text("standard output");
    o.flag("allow-unlike-cards", compared.allow_unlike).help("compare cells whose settings or protocol cards differ");
  }
};

int run(const Options& options) {
  const reports::Format format = reports::parse_format(options.out ? options.out->string() : options.format);
  const auto read = [&](const std::filesystem::path& file) {
    return reports::read_run(results::ResultsReader(file), options.experiment);
  };
  const reports::ExperimentData before = read(options.before), after = read(options.after);
  reports::Comparison comparison = reports::compare(before, after, options.compared);
  reports::mark_invented(comparison.document, after.invented);
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
       .description =
           "Equal settings give equal results, so every changed score or answer is listed as a change of the program. "
           "Exits with 0 when nothing regressed; with 1 when a mean dropped by more than --fail-on-drop (the margin "
           "unless given), or when a method failed that had not; settings that differ under one label are an error.",
       .examples = {{"kvarena compare main.db branch.db", "any drop of a mean exits with 1"},
                    {"kvarena compare main.db branch.db --margin 0.5 --fail-on-drop 5",
                     "for continuous integration that bears small ones"}}},
      run);
}

}  // namespace kvarena::cli
