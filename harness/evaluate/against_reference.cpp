#include "harness/evaluate/against_reference.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "harness/evaluate/describe.h"
#include "harness/evaluate/stored_values.h"
#include "metrics/distribution/acceptance.h"
#include "metrics/judge_prompt.h"
#include "metrics/registry.h"

namespace kvarena::evaluate {

using experiment::SampleOutcome;
using nlohmann::json;

namespace {

/// Scores the answer. `full_answer`: full KV's, for metrics that compare with it.
void add_scores(results::SampleResult& result, const Request& request, const std::string& full_answer) {
  const json extras = json::parse(request.sample->extras);
  const std::vector<std::string> full = {full_answer};
  for (const std::string& id : request.metrics) {
    const metrics::MetricEntry& metric = metrics::find_metric(id);
    const metrics::MetricScore score = metrics::score_sample(
        metric, {result.prediction, metric.against_full_cache ? full : request.sample->references, extras});
    result.values.push_back({.metric = id, .value = score.score, .unit = metric.unit});
    for (const metrics::StoredMetric& beside : metric.stored) {
      if (const auto value = score.values.find(beside.name); value != score.values.end())
        add(result, beside, value->second);
    }
  }
}

/// Adds what a judge will be told beside the answer, for each metric that needs one.
void add_judge_requests(results::SampleResult& result, const Request& request) {
  json row = json::parse(request.sample->extras);
  if (!row.contains("prompt")) row["prompt"] = request.sample->messages.back().content;
  for (const std::string& id : request.judged) {
    const metrics::JudgeQuestion& question = *metrics::find_metric(id).judge;
    const std::string reference = metrics::shows_reference(question.text)
                                      ? metrics::judge_reference(question, row, request.sample->references)
                                      : "";
    const json told{{"metric", id}, {"request", metrics::judge_request(question, row)}, {"reference", reference}};
    result.events.push_back({.event = results::JudgeRequest::kEvent, .data_json = told.dump()});
  }
}

void add_rounds(results::SampleResult& result, const Session& session) {
  if (session.rounds.empty()) return;
  std::vector<float> drafted, accepted;
  metrics::AcceptanceSummary total;
  for (const VerifyRound& round : session.rounds) {
    ++total.rounds;
    total.drafted += round.drafted;
    total.accepted += round.accepted;
    total.emitted += round.emitted;
    drafted.push_back(static_cast<float>(round.drafted));
    accepted.push_back(static_cast<float>(round.accepted));
  }
  add(result, metrics::kAcceptanceRate, total.acceptance_rate());
  add(result, metrics::kAcceptanceLength, total.mean_acceptance_length());
  add(result, metrics::kTokensPerVerify, total.mean_tokens_per_round());
  add_series(result, metrics::kDraftedTokens, std::move(drafted));
  add_series(result, metrics::kAcceptedTokens, std::move(accepted));
}

}  // namespace

bool Reference::begins_with(std::span<const int32_t> fed) const {
  return fed.size() <= tokens.size() && std::equal(fed.begin(), fed.end(), tokens.begin());
}

SessionOptions options_of_reference(const Request& request, Reference& reference) {
  SessionOptions options = session_options(request);
  options.on_logits = [&reference](int64_t, std::span<const float> row) {
    reference.logits.emplace_back(row.begin(), row.end());
  };
  return options;
}

void compare_step(std::vector<metrics::StepDivergence>& steps, const Reference& reference, const Request& request,
                  int64_t step, std::span<const float> row) {
  if (step != std::ssize(steps) || step >= std::ssize(reference.tokens)) return;
  steps.push_back(metrics::step_divergence(std::span<const float>(reference.logits[step]), row, reference.tokens[step],
                                           kl_temperature(request.sampling)));
}

SampleOutcome free_outcome(const Session& session, const Request& request, const Reference& reference) {
  return outcome_of(session, request, answer_text(request, session.tokens), answer_text(request, reference.tokens),
                    reference.bytes);
}

SampleOutcome outcome_of(const Session& session, const Request& request, const std::string& answer,
                         const std::string& full_answer, int64_t full_bytes) {
  SampleOutcome outcome;
  results::SampleResult& result = outcome.result;
  describe_answer(result, request, session);
  result.prediction = answer;
  result.references_json = json(request.sample->references).dump();
  add_activity(result, session.activity);
  add_scores(result, request, full_answer);
  add_judge_requests(result, request);
  if (full_bytes > 0) add_bytes(result, session, full_bytes);  // servers do not tell theirs
  add_traffic(result, session, request);
  add_rounds(result, session);
  add_reuse(result, session);
  return outcome;
}

void add_departure(results::SampleResult& result, const std::vector<int32_t>& answer, const Reference& reference) {
  const auto differ = std::ranges::mismatch(answer, reference.tokens);
  const bool same = answer == reference.tokens;
  const double position =
      same ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(differ.in1 - answer.begin());
  add(result, metrics::kExactMatchFull, same ? 1.0 : 0.0);
  add(result, metrics::kFirstDivergence, position);
}

}  // namespace kvarena::evaluate
