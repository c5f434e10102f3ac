// kvarena score: the metrics by themselves, on any predictions, and against their test vectors.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/cli/commands.h"
#include "harness/cli/terminal.h"
#include "harness/core/error.h"
#include "metrics/registry.h"
#include "metrics/score_files.h"
#include "metrics/vectors.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;

struct Options {
  std::optional<std::string> metric;
  std::optional<std::filesystem::path> input;
  std::filesystem::path references;
  std::string extras = "{}";
  bool mean = false;
  std::vector<std::filesystem::path> vectors;
  std::filesystem::path data_folder;
  double tolerance = 1e-6;

  void declare(OptionSet& o) {
    o.option("metric", "NAME", metric).help("the metric; `kvarena metrics` lists them");
    o.positional("INPUT", input)
        .help(
            "JSON Lines with \"prediction\" and \"references\" (or \"answers\", \"pred\", \"outputs\" and the like); "
            "the "
            "other members are at the metric's disposal")
        .default_text("standard input");
    o.option("references", "FILE", references).help("take references from this JSON Lines file, by id or by order");
    o.option("extras", "JSON", extras).help("an object added to what the metric sees of each row");
    o.flag("mean", mean).help("write the mean with its 95% interval instead of a line for each");
    o.option("vectors", "FILE", vectors)
        .help("recompute a file of test vectors instead; exit code 1 on any difference");
    o.option("data-folder", "FOLDER", data_folder)
        .help("where rows that vectors refer to are")
        .default_text("the folder above the file's");
    o.option("tolerance", "X", tolerance).help("with --vectors: largest difference, relative above 1");
  }
};

json sample_json(const ScoredSample& sample) {
  json result{{"score", sample.score.score}};
  if (!sample.id.empty()) result["id"] = sample.id;
  if (!sample.score.values.empty()) result["values"] = sample.score.values;
  if (!sample.score.notes.empty()) result["notes"] = sample.score.notes;
  return result;
}

int score_predictions(const Options& options) {
  if (!options.metric) {
    fail({.place = "--metric",
          .found = "nothing",
          .expected = "the name of a metric",
          .action = "`kvarena metrics` lists all"});
  }
  const MetricEntry& metric = find_metric(*options.metric);
  const std::filesystem::path input = options.input.value_or("/dev/stdin");
  const auto write = [&](const ScoredSample& sample) {
    if (options.mean) return;
    print(fmt::format("{}\n", sample_json(sample).dump(-1, ' ', false, json::error_handler_t::replace)));
  };
  const FileScore all =
      score_file(input, metric, {.extras_json = options.extras, .references_file = options.references}, write);
  if (all.samples == 0) fail({.place = input.string(), .found = "no row", .expected = "at least one"});
  const json summary{
      {"metric", metric.id},     {"version", metric.version}, {"samples", all.samples},        {"mean", all.mean},
      {"low", all.interval.low}, {"high", all.interval.high}, {"table_value", all.table_value}};
  if (options.mean) {
    print(fmt::format("{}\n", summary.dump()));
  } else {
    fmt::print(stderr, "{} samples, mean {} (version {}) {:.6f}, 95% interval {:.6f} to {:.6f}\n", all.samples,
               metric.id, metric.version, all.mean, all.interval.low, all.interval.high);
  }
  return 0;
}

int check_files(const Options& options) {
  bool equal = true;
  for (const std::filesystem::path& file : options.vectors) {
    const VectorReport report =
        check_vectors(file, {.tolerance = options.tolerance, .data_folder = options.data_folder});
    equal = equal && report.mismatches.empty();
    print(
        fmt::format("{}: {} rows, {}\n", file.string(), report.rows,
                    report.mismatches.empty() ? "all equal" : fmt::format("{} differences", report.mismatches.size())));
    for (const VectorMismatch& m : report.mismatches) {
      print(fmt::format("  {} {}: expected {}, found {}\n", m.place, m.field, m.expected, m.found));
    }
  }
  return equal ? 0 : 1;
}

int run(const Options& options) {
  if (options.vectors.empty()) return score_predictions(options);
  if (options.metric || options.mean) {
    fail({.place = "--vectors",
          .found = "--metric or --mean beside it",
          .expected = "neither: rows name their metrics"});
  }
  return check_files(options);
}

}  // namespace

Command score_command() {
  return make_command<Options>({.name = "score",
                                .summary = "score predictions with a metric, or check metrics against test vectors",
                                .examples = {{"kvarena score --metric qa_f1 pairs.jsonl", "a score for each line"},
                                             {"kvarena score --vectors qa_f1.jsonl --vectors kl.jsonl",
                                              "recompute what official code computed"}}},
                               run);
}

}  // namespace kvarena::cli
