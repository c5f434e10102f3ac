#include "harness/evaluate/served_timing.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "harness/core/error.h"
#include "harness/core/failure.h"
#include "harness/evaluate/describe.h"
#include "harness/evaluate/foreign_quality.h"
#include "harness/evaluate/served_quality.h"
#include "harness/evaluate/stored_values.h"
#include "metrics/statistics.h"

namespace kvarena::evaluate {
namespace {

constexpr double kMilliseconds = 1e3;

struct Streamed {
  CompletionAnswer answer;
  std::string failure;

  [[nodiscard]] bool told() const { return failure.empty() && !answer.arrivals.empty(); }
  [[nodiscard]] double first_s() const { return answer.arrivals.front().seconds; }
  [[nodiscard]] double last_s() const { return answer.arrivals.back().seconds; }
};

std::vector<Streamed> stream_together(const CompletionEndpoint& server, const CompletionQuery& query, int64_t batch) {
  std::vector<Streamed> streams(static_cast<size_t>(batch));
  std::vector<std::jthread> threads;
  for (Streamed& stream : streams) {
    threads.emplace_back([&] {
      stream.failure = failure_of([&] { stream.answer = server.stream(query); });
      if (stream.failure.empty() && stream.answer.arrivals.empty()) stream.failure = "an answer without a token";
    });
  }
  threads.clear();  // joins
  return streams;
}

/// Times between tokens; those that come together share theirs.
void add_gaps(const CompletionAnswer& answer, std::vector<double>& gaps_ms) {
  for (size_t i = 1; i < answer.arrivals.size(); ++i) {
    const CompletionAnswer::Arrival& arrival = answer.arrivals[i];
    const double gap = (arrival.seconds - answer.arrivals[i - 1].seconds) / static_cast<double>(arrival.tokens);
    gaps_ms.insert(gaps_ms.end(), static_cast<size_t>(arrival.tokens), gap * kMilliseconds);
  }
}

/// Tokens a second behind the first ones; 0 where there are none.
double throughput_of(const std::vector<Streamed>& streams) {
  int64_t tokens = 0;
  double first = 0, last = 0;
  for (const Streamed& stream : streams) {
    if (!stream.told()) continue;
    for (size_t i = 1; i < stream.answer.arrivals.size(); ++i) tokens += stream.answer.arrivals[i].tokens;
    first = first == 0 ? stream.first_s() : std::min(first, stream.first_s());
    last = std::max(last, stream.last_s());
  }
  return last > first ? static_cast<double>(tokens) / (last - first) : 0;
}

}  // namespace

experiment::SampleOutcome evaluate_timing_served(const CompletionEndpoint& server, const Request& request,
                                                 const std::string& prompts,
                                                 const experiment::TimingSettings& settings) {
  CompletionQuery query = query_of(request, prompt_form(prompts, server.settings().engine));
  query.fresh = true;
  query.ignore_end = request.stop.stop_tokens.empty();
  for (int64_t i = 0; i < settings.warmup; ++i) (void)stream_together(server, query, settings.batch);

  const auto before = server.cache_metrics();
  std::vector<double> first_token_ms, end_to_end_ms, gap_ms, throughput;
  std::map<std::string, int64_t> failures;  // how many had a reason
  int64_t failed = 0;
  CompletionAnswer answer;
  for (int64_t i = 0; i < settings.repeats; ++i) {
    const std::vector<Streamed> streams = stream_together(server, query, settings.batch);
    for (const Streamed& stream : streams) {
      if (stream.told()) continue;
      ++failed;
      ++failures[stream.failure];
    }
    if (!streams.front().told()) continue;
    answer = streams.front().answer;
    first_token_ms.push_back(streams.front().first_s() * kMilliseconds);
    end_to_end_ms.push_back(streams.front().last_s() * kMilliseconds);
    std::vector<double> gaps_ms;
    add_gaps(answer, gaps_ms);
    if (!gaps_ms.empty()) gap_ms.push_back(metrics::percentile(gaps_ms, 50));
    if (const double rate = throughput_of(streams); rate > 0) throughput.push_back(rate);
  }
  if (first_token_ms.empty()) throw UserError(failures.empty() ? "no stream was asked for" : failures.begin()->first);

  ForeignSession session;
  session.tokens = answer_tokens(answer, request, query);
  session.finish = answer.stopped ? FinishReason::stop : FinishReason::length;
  experiment::SampleOutcome outcome;
  results::SampleResult& result = outcome.result;
  describe_answer(result, request, session);
  result.active = true;  // what a setting does to answers is for cells of kind quality
  result.activity_json =
      nlohmann::json{{"failures", failures}, {"server_metrics", counters_between(before, server.cache_metrics())}}
          .dump();
  const Origin measured{.clock = results::Clock::measured};
  add_repeats(result, metrics::kTimeToFirstTokenMs, first_token_ms, measured);
  add_repeats(result, metrics::kEndToEndMs, end_to_end_ms, measured);
  add_repeats(result, metrics::kInterTokenLatencyMs, gap_ms, measured);
  add_repeats(result, metrics::kThroughputTokensPerS, throughput, measured);
  add(result, metrics::kBatchRequests, static_cast<double>(settings.batch));
  add(result, metrics::kFailedRequests, static_cast<double>(failed));
  add_server_values(result, answer, request);
  return outcome;
}

}  // namespace kvarena::evaluate
