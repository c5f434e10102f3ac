#include "harness/evaluate/served_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "harness/core/error.h"
#include "harness/core/failure.h"
#include "harness/evaluate/served_quality.h"
#include "harness/evaluate/serving_point.h"
#include "harness/evaluate/session_load.h"
#include "harness/evaluate/stored_values.h"
#include "metrics/statistics.h"

namespace kvarena::evaluate {
namespace {

using Clock = std::chrono::steady_clock;
using experiment::SampleOutcome;
using serving::Outcome;
using serving::Timeline;

/// Threads of requests under way; those that are over are joined as their end is noted.
class Requests {
 public:
  Requests(serving::Load load, const AskTimed& ask)
      : load_(std::move(load)), ask_(ask), timelines_(static_cast<size_t>(load_.requests())) {}

  serving::ServingRun run() {
    std::unique_lock lock(mutex_);
    while (true) {
      join_ended();
      const auto next = load_.next_time();
      if (!next && under_way_.empty()) break;
      if (next && *next <= now()) {
        begin(load_.take(), *next);
      } else if (next) {
        changed_.wait_until(lock,
                            began_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*next)));
      } else {
        changed_.wait(lock, [this] { return !ended_.empty(); });
      }
    }
    serving::ServingRun run{.requests = std::move(timelines_), .peak_running = peak_};
    for (const Timeline& request : run.requests) run.seconds = std::max(run.seconds, request.left_s);
    run.busy_seconds = run.seconds -= first_arrival_s(run.requests);
    return run;
  }

 private:
  [[nodiscard]] double now() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

  void begin(int64_t request, double due_s) {
    under_way_[request] = std::jthread([this, request, due_s] {
      Timeline timeline = ask_(request, [this] { return now(); });
      timeline.arrival_s = due_s;
      timeline.left_s = now();
      const std::lock_guard lock(mutex_);
      load_.left(request, timeline.left_s);
      timelines_[static_cast<size_t>(request)] = std::move(timeline);
      ended_.push_back(request);
      changed_.notify_one();
    });
    peak_ = std::max(peak_, static_cast<int64_t>(under_way_.size()));
  }

  /// Their threads need the lock no more.
  void join_ended() {
    for (const int64_t request : ended_) under_way_.erase(request);
    ended_.clear();
  }

  serving::Load load_;
  const AskTimed& ask_;
  std::vector<Timeline> timelines_;
  int64_t peak_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> ended_;
  const Clock::time_point began_ = Clock::now();
  std::map<int64_t, std::jthread> under_way_;  // gone before what they use
};

/// A load's requests as a server is asked, and what came of them.
struct Asked {
  explicit Asked(size_t requests) : answers(requests), scores(requests) {}
  std::vector<std::optional<CompletionAnswer>> answers;  // by request
  std::vector<double> scores;                            // 0 for what was not answered
  std::vector<int64_t> prompt_tokens;
  std::atomic<int64_t> timed_out = 0;
  serving::ServingRun run;
};

/// A stream as a request's life.
Timeline timeline_of(const CompletionAnswer& answer, double sent_s) {
  Timeline timeline{.admitted_s = std::numeric_limits<double>::quiet_NaN()};  // the server does not tell
  for (const CompletionAnswer::Arrival& arrival : answer.arrivals) {
    timeline.token_s.insert(timeline.token_s.end(), static_cast<size_t>(arrival.tokens), sent_s + arrival.seconds);
  }
  if (timeline.token_s.empty()) throw UserError("an answer without a token");
  return timeline;
}

CompletionQuery query_under_load(const Request& request, const std::string& form, const std::string& shares) {
  CompletionQuery query = query_of(request, form);
  query.shares = shares;
  query.fresh = shares.empty();
  query.ignore_end = request.stop.stop_tokens.empty();
  return query;
}

/// A word that prompts of one run share, where they are to share anything: a prefix, or what a session's turns repeat.
std::string shared_word(const ServingTask& task) {
  if (task.settings.shared_prefix == 0 && task.settings.arrivals != "sessions") return "";
  return fmt::format("{:x}", Clock::now().time_since_epoch().count());
}

void ask_all(const CompletionEndpoint& server, const ServingTask& task, const std::string& prompts, serving::Load load,
             Asked& asked) {
  const std::string form = prompt_form(prompts, server.settings().engine), shares = shared_word(task);
  std::vector<CompletionQuery> queries;
  for (const Request& request : task.requests) {
    queries.push_back(query_under_load(request, form, shares));
    asked.prompt_tokens.push_back(request.asked_tokens());
  }
  asked.run = serve_by_asking(std::move(load), [&](int64_t request, const std::function<double()>& now) {
    const auto at = static_cast<size_t>(request);
    Timeline timeline;
    Outcome otherwise = Outcome::failed;
    const std::string failure = failure_of([&] {
      try {
        const double sent_s = now();
        asked.answers[at] = server.stream(queries[at]);
        timeline = timeline_of(*asked.answers[at], sent_s);
      } catch (const RequestFailed& refusal) {
        asked.timed_out += refusal.timed_out();
        if (refusal.refused()) otherwise = Outcome::refused;
        throw;
      }
    });
    if (!failure.empty()) timeline = {.outcome = otherwise, .reason = failure};
    return timeline;
  });
  for (size_t i = 0; i < task.requests.size(); ++i) {
    if (asked.run.requests[i].outcome != Outcome::answered) continue;
    asked.scores[i] = score_of(task.requests[i], answer_tokens(*asked.answers[i], task.requests[i], queries[i]));
  }
}

std::string no_answer(const serving::ServingRun& run) {
  const auto answered = std::ranges::find(run.requests, Outcome::answered, &Timeline::outcome);
  return answered == run.requests.end() ? run.requests.front().reason : "";
}

/// Adds how many requests came to nothing, and of those answered what the server said of their prompts, on average.
void add_outcomes(results::SampleResult& result, const Asked& asked) {
  const auto failed = std::ranges::count(asked.run.requests, Outcome::failed, &Timeline::outcome);
  add(result, metrics::kFailedRequests, static_cast<double>(failed));
  std::vector<double> cached, beyond;
  for (size_t i = 0; i < asked.answers.size(); ++i) {
    if (asked.run.requests[i].outcome != Outcome::answered) continue;
    const CompletionAnswer& answer = *asked.answers[i];
    cached.push_back(static_cast<double>(answer.cached_tokens));
    if (answer.prompt_tokens) beyond.push_back(static_cast<double>(*answer.prompt_tokens - asked.prompt_tokens[i]));
  }
  add(result, metrics::kPrefixCachedTokens, metrics::mean_of(cached));
  if (!beyond.empty()) add(result, metrics::kUsageDifference, metrics::mean_of(beyond));
}

/// Reasons of requests without an answer, each once, with how many had it.
nlohmann::json reasons_of(const serving::ServingRun& run) {
  nlohmann::json reasons = nlohmann::json::object();
  for (const Timeline& request : run.requests) {
    if (request.outcome != Outcome::answered) reasons[request.reason] = reasons.value(request.reason, 0) + 1;
  }
  return reasons;
}

}  // namespace

serving::ServingRun serve_by_asking(serving::Load load, const AskTimed& ask) {
  return Requests(std::move(load), ask).run();
}

LoadReference measure_load(const CompletionEndpoint& baseline, const ServingTask& task, const std::string& prompts) {
  Asked asked(task.requests.size());
  ask_all(baseline, task, prompts, all_at_once(task.requests.size()), asked);
  if (const std::string trouble = no_answer(asked.run); !trouble.empty()) {
    throw UserError(fmt::format("the baseline, which loads are measured by: {}", trouble));
  }
  return {.capacity = capacity_of(asked.run), .scores = std::move(asked.scores)};
}

SampleOutcome evaluate_load(const CompletionEndpoint& server, const ServingTask& task, const LoadReference& reference,
                            const std::string& prompts) {
  const ServingPoint point{.settings = task.settings,
                           .requests = task.requests.size(),
                           .point = task.point,
                           .seed = task.seed,
                           .asked = task.requests};
  double rate = 0;
  Asked asked(task.requests.size());
  const auto before = server.cache_metrics();
  ask_all(server, task, prompts, load_of(point, reference.capacity, rate), asked);
  SampleOutcome outcome{.failure = no_answer(asked.run)};
  if (!outcome.failure.empty()) return outcome;
  results::SampleResult& result = outcome.result;
  describe_requests(result, task.settings, asked.run, describe_prompts(result, task.requests), asked.scores);
  for (const Timeline& request : asked.run.requests) result.output_tokens += std::ssize(request.token_s);
  result.active = true;  // what a setting does to answers is for cells of kind quality
  result.activity_json = nlohmann::json{{"server_metrics", counters_between(before, server.cache_metrics())},
                                        {"timed_out", asked.timed_out.load()},
                                        {"failures", reasons_of(asked.run)}}
                             .dump();
  add_turns(result, point, asked.run);
  add_run(result, {.clock = results::Clock::measured}, task.settings,
          {.run = asked.run,
           .rate = rate,
           .scores = asked.scores,
           .full_scores = reference.scores,
           .prompt_tokens = asked.prompt_tokens});
  add_outcomes(result, asked);
  return outcome;
}

}  // namespace kvarena::evaluate
