#include "harness/evaluate/judge.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/core/files.h"

namespace kvarena::evaluate {
namespace {

metrics::MetricScore read_words(const metrics::MetricEntry& metric, const std::string& words) {
  return metrics::score_sample(metric, {words, {}, nlohmann::json::object()});
}

bool is_read(const metrics::MetricScore& score) {
  const auto parsed = score.values.find("parsed");
  return parsed == score.values.end() || parsed->second != 0;
}

/// The metric's mark and its parts; NaN where the words could not be read.
std::vector<results::MetricValue> marks_of(const metrics::MetricEntry& metric, const metrics::MetricScore& score) {
  const auto value = [&](double mark) { return is_read(score) ? mark : std::nan(""); };
  std::vector<results::MetricValue> marks = {{.metric = metric.id, .value = value(score.score), .unit = metric.unit}};
  for (const metrics::StoredMetric& part : metric.stored) {
    const auto mark = score.values.find(part.name);
    marks.push_back(
        {.metric = part.name, .value = value(mark == score.values.end() ? 0 : mark->second), .unit = part.unit});
  }
  return marks;
}

/// The judge under each name that its marks are stored under.
std::vector<results::JudgeRecord> records_of(const metrics::MetricEntry& metric, const EndpointSettings& judge) {
  const std::string question =
      sha256(fmt::format("{}\n{}\n{}", metric.judge->text, metric.judge->system, metric.judge->temperature));
  std::vector<results::JudgeRecord> records = {
      {.metric = metric.id, .model = judge.model, .question_sha256 = question}};
  for (const metrics::StoredMetric& part : metric.stored) {
    records.push_back({.metric = part.name, .model = judge.model, .question_sha256 = question});
  }
  return records;
}

}  // namespace

std::string ask_judge(ChatEndpoint& judge, const metrics::MetricEntry& metric, const std::string& prompt) {
  constexpr int64_t kDraws = 5;
  std::string words;
  for (int64_t draw = 0; draw < kDraws; ++draw) {
    words = judge.ask(prompt, draw);
    if (is_read(read_words(metric, words))) break;
  }
  return words;
}

EndpointSettings with_question(EndpointSettings judge, const metrics::JudgeQuestion& question) {
  judge.system = question.system;
  judge.temperature = question.temperature;
  judge.max_tokens = question.max_tokens;
  return judge;
}

JudgingSummary judge_answers(results::ResultsStore& results, const std::string& experiment,
                             const JudgingOptions& options, Progress& progress) {
  std::set<std::string> asked;
  for (const results::JudgeRequest& request : results.read().unjudged(experiment)) asked.insert(request.metric);
  for (const results::JudgeRecord& record : results.read().judges(experiment)) asked.insert(record.metric);
  std::map<std::string, ChatEndpoint> judges;  // by metric: each has its own system message
  for (const metrics::MetricEntry* metric : metrics::all_metrics()) {
    if (metric->judge == nullptr || !asked.contains(metric->id)) continue;
    results.set_judges(experiment, records_of(*metric, options.judge), options.replace);
    judges.emplace(metric->id, ChatEndpoint(with_question(options.judge, *metric->judge)));
  }

  JudgingSummary summary;
  const std::vector<results::JudgeRequest> waiting = results.read().unjudged(experiment);
  progress.begin("judging " + experiment, std::ssize(waiting));
  std::string cell;
  std::map<std::string, std::string> answers;  // of the cell, by sample
  for (const results::JudgeRequest& request : waiting) {
    if (request.cell_id != cell) answers = results.read().predictions(cell = request.cell_id);
    const metrics::MetricEntry& metric = metrics::find_metric(request.metric);
    const std::string prompt = metrics::judge_prompt(
        metric.judge->text,
        {.instruction = request.request, .response = answers.at(request.sample_id), .reference = request.reference});
    const metrics::MetricScore score = read_words(metric, ask_judge(judges.at(metric.id), metric, prompt));
    results.add_marks(request, marks_of(metric, score));
    ++(is_read(score) ? summary.marked : summary.unread);
    progress.advance();
  }
  progress.finish();
  for (const auto& [metric, judge] : judges) summary.use += judge.use();
  return summary;
}

}  // namespace kvarena::evaluate
