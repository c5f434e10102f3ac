// kvarena score: the metrics by themselves, on any predictions, and against their test vectors.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/cli/commands.h"
#include "harness/cli/judge_options.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/home.h"
#include "harness/core/json_text.h"
#include "harness/core/page.h"
#include "harness/evaluate/judge.h"
#include "harness/evaluate/local_embedder.h"
#include "metrics/judge_prompt.h"
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
  JudgeOptions judge;
  std::filesystem::path judge_question;

  void declare(OptionSet& o) {
    o.option("metric", "METRIC", metric).help("the metric; `kvarena metrics` lists them");
    o.positional("INPUT", input)
        .help(
            "JSON Lines with \"prediction\" and \"references\" (or \"answers\", \"pred\", \"outputs\" and the like); "
            "the other members are at the metric's disposal")
        .default_text("standard input");
    o.option("references", "FILE", references).help("take references from this JSON Lines file, by id or by order");
    o.option("extras", "JSON", extras).help("an object added to what the metric sees of each row");
    o.flag("mean", mean).help("write the mean with its 95% interval instead of a line for each");
    judge.declare(o);
    o.option("judge-question", "FILE", judge_question)
        .help("what to ask, with $INST$, $RESPONSE$ and $REFERENCE$ in it")
        .default_text("the metric's own question");
    o.option("vectors", "FILE", vectors)
        .help("recompute a file of test vectors instead; exit code 1 on any difference");
    o.option("data-folder", "FOLDER", data_folder)
        .help("where rows that vectors refer to are")
        .default_text("the folder above the file's");
    o.option("tolerance", "X", tolerance).help("with --vectors: the largest difference that counts as equal");
  }
};

json sample_json(const metrics::ScoredSample& sample) {
  json result{{"score", sample.score.score}};
  if (!sample.id.empty()) result["id"] = sample.id;
  if (!sample.score.values.empty()) result["values"] = sample.score.values;
  if (!sample.score.notes.empty()) result["notes"] = sample.score.notes;
  return result;
}

/// Makes the judge's prompt of each row: with the user's question, or the metric's own.
std::function<std::string(const json&, const metrics::PredictionRow&)> question_for(
    const Options& options, const metrics::MetricEntry& metric) {
  if (options.judge_question.empty() && metric.judge == nullptr) {
    fail({.place = "--judge-url",
          .found = fmt::format("metric \"{}\", which no judge is asked for", metric.id),
          .expected = "a metric of a judge's words (judged_quality, judged_needle), or --judge-question"});
  }
  const std::string question = options.judge_question.empty() ? metric.judge->text : read_file(options.judge_question);
  const metrics::JudgeQuestion& how = metric.judge != nullptr ? *metric.judge : metrics::kQualityQuestion;
  return [question, &how](const json& row, const metrics::PredictionRow& sample) {
    const bool told = metrics::shows_reference(question);
    return metrics::judge_prompt(question,
                                 {.instruction = metrics::judge_request(how, row),
                                  .response = sample.prediction,
                                  .reference = told ? metrics::judge_reference(how, row, sample.references) : ""});
  };
}

int score_predictions(const Options& options) {
  if (!options.metric) {
    fail({.place = "--metric",
          .found = "nothing",
          .expected = "the name of a metric",
          .action = "`kvarena metrics` lists all"});
  }
  const metrics::MetricEntry& metric = metrics::find_metric(*options.metric);
  const std::filesystem::path input = options.input.value_or("/dev/stdin");
  const auto write = [&](const metrics::ScoredSample& sample) {
    if (options.mean) return;
    print(fmt::format("{}\n", json_text(sample_json(sample))));
  };
  metrics::ScoreFileOptions how{.extras_json = options.extras, .references_file = options.references};
  std::optional<evaluate::ChatEndpoint> endpoint;
  if (options.judge.url) {
    const evaluate::EndpointSettings judge = options.judge.settings();
    endpoint.emplace(metric.judge != nullptr ? evaluate::with_question(judge, *metric.judge) : judge);
    how.rewrite = [&, question = question_for(options, metric)](const json& row, const metrics::PredictionRow& sample) {
      return evaluate::ask_judge(*endpoint, metric, question(row, sample));
    };
  }
  const metrics::FileScore all = metrics::score_file(input, metric, how, write);
  if (endpoint) print_use(endpoint->use(), options.judge.endpoint.model);
  if (all.samples == 0) fail({.place = input.string(), .found = "no row", .expected = "at least one"});
  if (all.unread > 0) {
    fmt::print(stderr, "warning: {} of {} texts hold no marks that can be read; the mean leaves them out\n", all.unread,
               all.samples);
  }
  if (all.unread == all.samples) {
    fail({.place = input.string(),
          .found = "no text with marks that can be read",
          .expected = fmt::format("what \"{}\" reads; `kvarena metrics {}` says what that is", metric.id, metric.id)});
  }
  json summary{{"metric", metric.id},
               {"version", metric.version},
               {"samples", all.samples - all.unread},
               {"unread", all.unread},
               {"mean", all.mean},
               {"low", all.interval.low},
               {"high", all.interval.high},
               {"table_value", all.table_value}};
  if (endpoint) summary["judge"] = options.judge.endpoint.model;
  if (options.mean) {
    print(fmt::format("{}\n", summary.dump()));
  } else {
    fmt::print(stderr, "{} samples, mean {} (version {}) {:.6f}, 95% interval {:.6f} to {:.6f}\n",
               all.samples - all.unread, metric.id, metric.version, all.mean, all.interval.low, all.interval.high);
  }
  return 0;
}

int check_files(const Options& options) {
  bool equal = true;
  for (const std::filesystem::path& file : options.vectors) {
    const metrics::VectorReport report =
        metrics::check_vectors(file, {.tolerance = options.tolerance, .data_folder = options.data_folder});
    equal = equal && report.mismatches.empty();
    print(
        fmt::format("{}: {} rows, {}\n", file.string(), report.rows,
                    report.mismatches.empty() ? "all equal" : fmt::format("{} differences", report.mismatches.size())));
    for (const metrics::VectorMismatch& m : report.mismatches) {
      print(fmt::format("  {} {}: expected {}, found {}\n", m.place, m.field, m.expected, m.found));
    }
  }
  return equal ? 0 : 1;
}

int run(const Options& options) {
  evaluate::use_local_embedder(kvarena_home());
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
  return make_command<Options>(
      {.name = "score",
       .summary = "score predictions with a metric, or check metrics against test vectors",
       .examples =
           {{"kvarena score --metric qa_f1 pairs.jsonl", "a score for each line"},
            {"kvarena score --metric judged_quality --judge-url http://127.0.0.1:8000/v1 --judge-model M answers.jsonl",
             "marks by a judge model"},
            {"kvarena score --vectors qa_f1.jsonl --vectors kl.jsonl", "recompute what official code computed"}}},
      run);
}

}  // namespace kvarena::cli
