#include "metrics/text/longbench.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "harness/core/error.h"
#include "metrics/registry.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

struct Task {
  std::string_view dataset, metric;
  bool first_line_only = false;
};

constexpr std::array<Task, 21> kTasks = {{{"narrativeqa", "qa_f1"},
                                          {"qasper", "qa_f1"},
                                          {"multifieldqa_en", "qa_f1"},
                                          {"multifieldqa_zh", "qa_f1_zh"},
                                          {"hotpotqa", "qa_f1"},
                                          {"2wikimqa", "qa_f1"},
                                          {"musique", "qa_f1"},
                                          {"dureader", "rouge_l_zh"},
                                          {"gov_report", "rouge_l"},
                                          {"qmsum", "rouge_l"},
                                          {"multi_news", "rouge_l"},
                                          {"vcsum", "rouge_l_zh"},
                                          {"trec", "classification", true},
                                          {"triviaqa", "qa_f1", true},
                                          {"samsum", "rouge_l", true},
                                          {"lsht", "classification", true},
                                          {"passage_count", "count"},
                                          {"passage_retrieval_en", "retrieval"},
                                          {"passage_retrieval_zh", "retrieval_zh"},
                                          {"lcc", "code_sim"},
                                          {"repobench-p", "code_sim"}}};

const Task& task_of(std::string_view dataset) {
  std::string_view name = dataset;
  if (name.ends_with("_e")) name.remove_suffix(2);  // LongBench-E files
  std::vector<std::string> known;
  for (const Task& task : kTasks) {
    if (task.dataset == name) return task;
    known.emplace_back(task.dataset);
  }
  fail({.place = "LongBench task",
        .found = fmt::format("\"{}\"", dataset),
        .expected = "one of the 21 tasks",
        .nearest = nearest_name(name, known)});
}

MetricScore score_longbench(const MetricInput& input) {
  const auto dataset = input.extras.find("dataset");
  if (dataset == input.extras.end() || !dataset->is_string()) {
    fail({.place = "metric \"longbench\": extras.dataset",
          .found = "nothing",
          .expected = "the name of a LongBench task"});
  }
  MetricScore score;
  score.score = longbench_sample_score(dataset->get<std::string>(), input.prediction, input.references, input.extras);
  score.notes["metric"] = longbench_metric(dataset->get<std::string>());
  return score;
}

// numpy's order of adding: eight running sums in blocks of up to 128 values, blocks in pairs.
double numpy_sum(std::span<const double> values) {
  const size_t n = values.size();
  if (n > 128) {
    const size_t half = n / 2 - n / 2 % 8;
    return numpy_sum(values.first(half)) + numpy_sum(values.subspan(half));
  }
  std::array<double, 8> r{};
  const size_t whole = n - n % 8;
  for (size_t i = 0; i < whole; ++i) r[i % 8] += values[i];
  const double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  return std::accumulate(values.begin() + static_cast<int64_t>(whole), values.end(), sum);
}

nlohmann::json recompute(const nlohmann::json& row, const VectorContext&) {
  const auto dataset = row.at("dataset").get<std::string>();
  const auto predictions = row.at("predictions").get<std::vector<std::string>>();
  const auto answers = row.at("answers").get<std::vector<std::vector<std::string>>>();
  std::vector<double> scores;
  for (size_t i = 0; i < predictions.size(); ++i) {
    scores.push_back(longbench_sample_score(dataset, predictions[i], answers.at(i), row));
  }
  if (!row.value("longbench_e", false)) return {{"expected", longbench_table_score(scores)}};
  return {{"expected", longbench_e_table_scores(scores, row.at("lengths").get<std::vector<int64_t>>())}};
}

}  // namespace

std::string longbench_metric(std::string_view dataset) { return std::string(task_of(dataset).metric); }

bool longbench_first_line_only(std::string_view dataset) { return task_of(dataset).first_line_only; }

double longbench_sample_score(std::string_view dataset, std::string_view prediction,
                              std::span<const std::string> answers, const nlohmann::json& extras) {
  const Task& task = task_of(dataset);
  const std::string_view shown = task.first_line_only ? first_line(prediction) : prediction;
  return find_metric(task.metric).score({shown, answers, extras}).score;
}

double longbench_table_score(std::span<const double> scores) {
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  return python_round(100 * sum / static_cast<double>(scores.size()), 2);
}

std::map<std::string, double> longbench_e_table_scores(std::span<const double> scores,
                                                       std::span<const int64_t> lengths) {
  KVARENA_ASSERT(scores.size() == lengths.size(),
                 fmt::format("scores [{}], lengths [{}]", scores.size(), lengths.size()));
  std::map<std::string, std::vector<double>> buckets = {{"0-4k", {}}, {"4-8k", {}}, {"8k+", {}}};
  for (size_t i = 0; i < scores.size(); ++i) {
    buckets[lengths[i] < 4000 ? "0-4k" : lengths[i] < 8000 ? "4-8k" : "8k+"].push_back(scores[i]);
  }
  std::map<std::string, double> table;
  for (const auto& [bucket, values] : buckets) {
    const double mean = numpy_sum(values) / static_cast<double>(values.size());
    table[bucket] = values.empty() ? std::numeric_limits<double>::quiet_NaN() : numpy_round(100 * mean, 2);
  }
  return table;
}

KVARENA_METRIC({.id = "longbench",
                .title = "LongBench official score",
                .summary = "The metric and first-line rule LongBench's scorer has for extras.dataset; tables print "
                           "round(100 * mean, 2).",
                .source = "THUDM/LongBench @2e00731f LongBench/eval.py scorer, scorer_e",
                .score = score_longbench,
                .vectors = {{"longbench_dataset_score", recompute}}});

}  // namespace kvarena::metrics
