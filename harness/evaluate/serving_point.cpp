#include "harness/evaluate/serving_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "datasets/arrivals.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/evaluate/session_load.h"
#include "harness/evaluate/stored_values.h"
#include "metrics/latency/serving.h"
#include "metrics/registry.h"
#include "metrics/statistics.h"

namespace kvarena::evaluate {

using experiment::ServingSettings;
using results::Clock;
using serving::Outcome;
using serving::ServingRun;

namespace {

constexpr double kMilliseconds = 1e3;
constexpr double kMebi = 1024.0 * 1024.0;

/// The next arrivals of a trace behind those of earlier points, moved to time 0 and stretched to `rate` on average.
std::vector<double> trace_arrivals(const ServingPoint& point, double rate) {
  const size_t count = point.requests;
  datasets::ArrivalReader reader(point.settings.trace);
  std::vector<double> times;
  for (size_t row = 0; row < (point.point + 1) * count; ++row) {
    const std::optional<datasets::Arrival> arrival = reader.next();
    if (!arrival) {
      fail({.place = point.settings.trace,
            .found = fmt::format("{} requests", row),
            .expected = fmt::format("at least {}, {} for each point", point.settings.load.size() * count, count),
            .action = "ask for fewer requests or take a longer trace"});
    }
    if (row >= point.point * count) times.push_back(arrival->time_s);
  }
  std::ranges::sort(times);
  const double first = times.front(), span = times.back() - times.front();
  const double stretch = span > 0 ? static_cast<double>(count - 1) / rate / span : 0;
  for (double& time : times) time = (time - first) * stretch;
  return times;
}

/// Spreads tokens that arrive together, as those of a verification round do, over the time since the token before them.
std::vector<double> spread_bursts(std::vector<double> times) {
  for (size_t i = 1; i < times.size();) {
    size_t end = i;
    while (end < times.size() && times[end] == times[i]) ++end;
    const double start = times[i - 1], step = (times[end - 1] - start) / static_cast<double>(end - i);
    for (size_t k = i; k < end; ++k) times[k] = start + step * static_cast<double>(k - i + 1);
    i = end;
  }
  return times;
}

/// A list over requests without those that only load the server.
template <typename Item>
std::span<const Item> counted(std::span<const Item> all, const ServingSettings& settings) {
  const auto first = static_cast<size_t>(settings.warmup), last = static_cast<size_t>(settings.cooldown);
  KVARENA_ASSERT(first + last < all.size(), fmt::format("{} requests, {} do not count", all.size(), first + last));
  return all.subspan(first, all.size() - first - last);
}

void add_spread(results::SampleResult& result, const metrics::StoredSpread& spread,
                const metrics::LatencySummary& seconds, Origin origin) {
  add(result, spread.mean, seconds.mean * kMilliseconds, origin);
  add(result, spread.p50, seconds.p50 * kMilliseconds, origin);
  add(result, spread.p90, seconds.p90 * kMilliseconds, origin);
  add(result, spread.p99, seconds.p99 * kMilliseconds, origin);
}

}  // namespace

serving::BatchSettings batch_settings(const ServingSettings& settings) {
  return {.cache_bytes = static_cast<int64_t>(settings.cache_mib * kMebi),
          .pass_tokens = settings.pass_tokens,
          .max_running = settings.max_running};
}

serving::Load all_at_once(size_t requests) { return serving::Load::at_times(std::vector<double>(requests, 0)); }

serving::Load load_of(const ServingPoint& point, double capacity, double& rate) {
  const double value = point.settings.load[point.point];
  if (point.settings.arrivals == "clients") {
    rate = std::numeric_limits<double>::quiet_NaN();
    return serving::Load::of_clients(static_cast<int64_t>(value), static_cast<int64_t>(point.requests));
  }
  rate = value * capacity;
  if (point.settings.arrivals == "trace") return serving::Load::at_times(trace_arrivals(point, rate));
  if (point.settings.arrivals == "sessions") return serving::Load::of_sessions(recorded_sessions(point, rate));
  const uint64_t seed = point.seed + point.point;
  const double burstiness = point.settings.burstiness;
  return serving::Load::at_times(burstiness == 1 ? datasets::poisson_arrivals(rate, point.requests, seed)
                                                 : datasets::gamma_arrivals(rate, burstiness, point.requests, seed));
}

double capacity_of(const ServingRun& run) {
  const auto answered = std::ranges::count(run.requests, Outcome::answered, &serving::Timeline::outcome);
  return static_cast<double>(answered) / run.seconds;
}

std::string trouble_of(const ServingRun& run) {
  std::string refusal;
  bool answered = false;
  for (const serving::Timeline& request : run.requests) {
    if (request.outcome == Outcome::failed) return request.reason;
    if (request.outcome == Outcome::refused) refusal = request.reason;
    answered = answered || request.outcome == Outcome::answered;
  }
  return answered ? "" : refusal;
}

std::vector<float> in_milliseconds(std::span<const double> seconds) {
  std::vector<float> milliseconds;
  for (const double value : seconds) milliseconds.push_back(static_cast<float>(value * kMilliseconds));
  return milliseconds;
}

double score_of(const Request& request, std::span<const int32_t> tokens) {
  if (request.metrics.empty()) return 0;
  const std::string text = answer_text(request, tokens);
  const nlohmann::json extras = nlohmann::json::parse(request.sample->extras);
  return metrics::score_sample(metrics::find_metric(request.metrics.front()),
                               {text, request.sample->references, extras})
      .score;
}

std::string describe_prompts(results::SampleResult& result, std::span<const Request> requests) {
  std::string prompts;
  for (const Request& request : requests) {
    prompts += request.sample->prompt_sha256;
    result.prompt_tokens += request.asked_tokens();
    result.truncated_tokens += request.sample->truncation.tokens_removed;
  }
  return prompts;
}

void describe_requests(results::SampleResult& result, const ServingSettings& settings, const ServingRun& run,
                       const std::string& prompts, std::span<const double> scores) {
  result.prompt_sha256 = sha256(prompts);
  result.finish_reason = "served";
  result.wall_s = run.busy_seconds;
  const auto refused = std::ranges::count(run.requests, Outcome::refused, &serving::Timeline::outcome);
  add(result, metrics::kServedScore, metrics::mean_of(counted(scores, settings)));
  if (run.peak_held_bytes > 0) {
    add(result, metrics::kPeakCacheBytes, static_cast<double>(run.peak_held_bytes), {.clock = Clock::measured});
  }
  add(result, metrics::kRefusedRequests, static_cast<double>(refused));
}

void add_run(results::SampleResult& result, const Origin& origin, const ServingSettings& settings,
             const ScoredRun& scored) {
  const ServingRun& run = scored.run;
  std::vector<metrics::RequestTimes> times;
  std::vector<double> first, queueing, whole;
  const auto lengths = counted(std::span<const int64_t>(scored.prompt_tokens), settings);
  const auto requests = counted(std::span<const serving::Timeline>(run.requests), settings);
  for (size_t i = 0; i < requests.size(); ++i) {
    const serving::Timeline& request = requests[i];
    whole.push_back(NAN);
    if (request.outcome != Outcome::answered) continue;
    times.push_back(
        {.arrival_s = request.arrival_s, .prompt_tokens = lengths[i], .token_times_s = spread_bursts(request.token_s)});
    first.push_back(request.token_s.front() - request.arrival_s);
    if (std::isfinite(request.admitted_s)) queueing.push_back(request.admitted_s - request.arrival_s);
    whole.back() = request.token_s.back() - request.arrival_s;
  }
  const metrics::ServiceLevel level{.time_to_first_token_s = settings.time_to_first_token_ms / kMilliseconds,
                                    .time_per_output_token_s = settings.time_per_output_token_ms / kMilliseconds};
  const metrics::ServingSummary summary = metrics::serving_summary(times, level);
  // Requests that were refused or failed have met no objective.
  const double answered = static_cast<double>(times.size()) / static_cast<double>(requests.size());
  add(result, metrics::kOfferedRequestsPerS, scored.rate, origin);
  add_spread(result, metrics::kTimeToFirstTokenSpread, summary.time_to_first_token_s, origin);
  if (!queueing.empty()) add_spread(result, metrics::kQueueingSpread, metrics::summarize(queueing), origin);
  add_spread(result, metrics::kInterTokenLatencySpread, summary.inter_token_latency_s, origin);
  add_spread(result, metrics::kEndToEndSpread, summary.end_to_end_s, origin);
  add(result, metrics::kServedTokensPerS, summary.output_tokens_per_s, origin);
  add(result, metrics::kServedRequestsPerS, summary.requests_per_s, origin);
  add(result, metrics::kAttainment, summary.attainment * answered, origin);
  add(result, metrics::kGoodputLatencyPerS, summary.goodput_requests_per_s, origin);
  const metrics::ScoreGoodput goodput =
      metrics::score_goodput(counted(std::span<const double>(scored.scores), settings), scored.full_scores,
                             summary.duration_s, settings.score_share);
  add(result, metrics::kGoodputScorePerS, goodput.goodput_per_s, origin);
  add_series(result, metrics::kTimeToFirstTokenMs, in_milliseconds(first), origin);
  if (!queueing.empty()) add_series(result, metrics::kQueueingMs, in_milliseconds(queueing), origin);
  add_series(result, metrics::kEndToEndMs, in_milliseconds(whole), origin);
}

}  // namespace kvarena::evaluate
