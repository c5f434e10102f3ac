// kvarena report: a results database as a page, a table or a text.

#include <fmt/format.h>

#include "harness/cli/commands.h"
#include "harness/cli/page_output.h"
#include "harness/core/error.h"
#include "harness/core/own_files.h"
#include "harness/evaluate/model_evaluator.h"
#include "harness/experiment/config.h"
#include "harness/experiment/overrides.h"
#include "harness/results/results_reader.h"
#include "reports/equal_bytes.h"
#include "reports/experiment_report.h"
#include "reports/figures.h"

namespace kvarena::cli {
namespace {

struct Options {
  std::filesystem::path database;
  std::string experiment;
  PageOutput output;
  bool all = false;
  std::vector<double> bytes;
  bool allow_unlike_cards = false;
  std::string baseline;
  std::optional<std::filesystem::path> figures, published;

  void declare(OptionSet& o) {
    o.option("database", "FILE", database).help("results database").required();
    o.option("experiment", "NAME", experiment).help("which one").default_text("the only one of the database");
    o.flag("all", all).help("every experiment of the database on one page, as the tables of a paper");
    output.declare(o, "the config's output.report, else standard output");
    o.option("bytes", "SHARE", bytes)
        .help(
            "rank all methods at equal resident bytes: of each the setting nearest below this share of full KV's, "
            "above the next smaller one");
    o.option("figures", "FOLDER", figures)
        .help("every chart as a file too: SVG, and PNG and PDF where rsvg-convert is installed");
    o.option("baseline", "METHOD", baseline)
        .help("label of the method that all others are compared with")
        .default_text("the config's, which is full KV");
    o.option("published", "CONFIG", published)
        .help("set this config's printed numbers beside, in place of the run's own");
    o.flag("allow-unlike-cards", allow_unlike_cards).help("compare rows whose protocol cards differ, and say how");
  }
};

void write(const Options& options, const PageOutput& output, const reports::Document& document) {
  output.write(render(document, output.chosen()));
  if (!options.figures) return;
  const reports::Figures figures = reports::write_figures(document, *options.figures);
  fmt::print(stderr, "{}: {} files{}{}\n", options.figures->string(), figures.written.size(),
             figures.missing.empty() ? "" : "; ", figures.missing);
}

int report_all(const Options& options, const results::ResultsReader& reader, const reports::ReportOptions& report) {
  if (!options.bytes.empty() || !options.experiment.empty() || options.published)
    fail({.place = "--all", .found = "--bytes, --experiment or --published beside it", .expected = "one of them"});
  std::vector<reports::ExperimentData> all;
  for (const results::ExperimentRecord& record : reader.experiments())
    all.push_back(reports::read_experiment(reader, record.experiment));
  if (all.empty()) fail({.place = options.database.string(), .found = "no experiment", .expected = "at least one"});
  write(options, options.output, reports::joined_report(options.database.stem().string(), all, report));
  return 0;
}

std::optional<std::vector<results::PublishedValue>> printed_numbers(const Options& options) {
  if (!options.published) return std::nullopt;
  return experiment::load_config(*options.published, {.models_folder = own_file("configs/models")},
                                 evaluate::registry_validators())
      .published;
}

/// With neither file nor format the page goes where the config of the experiment's last run says.
PageOutput destination(const Options& options, const reports::ExperimentData& data) {
  PageOutput output = options.output;
  if (output.out || !output.format.empty() || data.runs.empty()) return output;
  if (const std::string report = experiment::report_of(data.runs.back()); !report.empty()) output.out = report;
  return output;
}

int run(const Options& options) {
  for (const double share : options.bytes) {
    if (!(share > 0)) fail({.place = "--bytes", .found = fmt::format("{}", share), .expected = "a share above 0"});
  }
  (void)options.output.chosen();  // refuses an unknown format before the database is read
  const results::ResultsReader reader(options.database);
  const reports::ReportOptions report{.allow_unlike_cards = options.allow_unlike_cards, .baseline = options.baseline};
  if (options.all) return report_all(options, reader, report);
  const reports::ExperimentData data = reports::read_experiment(reader, options.experiment, printed_numbers(options));
  if (!options.bytes.empty()) {
    write(options, options.output, reports::equal_bytes_report(data, options.bytes));
  } else {
    write(options, destination(options, data), experiment_report(data, report));
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
                    {"kvarena report --database quickstart.db --format tex", "tables for a paper"},
                    {"kvarena report --database quickstart.db --baseline 'SnapKV, keep 0.5' --out against-snapkv.html",
                     "any pair compared"},
                    {"kvarena report --database quickstart.db --out paper.tex --figures figures",
                     "tables, and each chart as SVG, PNG and PDF"},
                    {"kvarena report --database leaderboard.db --bytes 0.29 --out leaderboard.html",
                     "one setting a method, ranked"}}},
      run);
}

}  // namespace kvarena::cli
