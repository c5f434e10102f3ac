#include "harness/evaluate/serving_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "datasets/arrivals.h"
#include "harness/core/error.h"
#include "metrics/latency/serving.h"

namespace kvarena::evaluate {

using experiment::ServingSettings;
using serving::Outcome;
using serving::ServingRun;
using results::Clock;

namespace {

constexpr double kMilliseconds = 1e3;
constexpr double kMebi = 1024.0 * 1024.0;

/// The first arrivals of a trace that no earlier point has had, from time 0, at `rate` on the whole.
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

/// Tokens that come together, as those of a verification round do, share the time since the token before them.
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

void add_spread(results::SampleResult& result, Clock clock, const std::string& name, const metrics::LatencySummary& seconds) {
  add(result, clock, "mean_" + name, seconds.mean * kMilliseconds, "ms");
  add(result, clock, "p50_" + name, seconds.p50 * kMilliseconds, "ms");
  add(result, clock, "p90_" + name, seconds.p90 * kMilliseconds, "ms");
  add(result, clock, "p99_" + name, seconds.p99 * kMilliseconds, "ms");
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
  return serving::Load::at_times(datasets::poisson_arrivals(rate, point.requests, point.seed + point.point));
}

double capacity_of(const ServingRun& run) { return static_cast<double>(run.requests.size()) / run.seconds; }

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

void add(results::SampleResult& result, Clock clock, const std::string& name, double value, const std::string& unit) {
  result.values.push_back({.metric = name, .value = value, .unit = unit, .clock = clock});
}

void add_series(results::SampleResult& result, Clock clock, const std::string& name, const std::vector<double>& seconds) {
  results::Series series{.name = name, .unit = "ms", .clock = clock};
  for (const double value : seconds) series.values.push_back(static_cast<float>(value * kMilliseconds));
  result.series.push_back(std::move(series));
}

void add_run(results::SampleResult& result, Clock clock, const ServingSettings& settings, const ScoredRun& scored) {
  const ServingRun& run = scored.run;
  std::vector<metrics::RequestTimes> times;
  std::vector<double> first, queueing;
  for (size_t i = 0; i < run.requests.size(); ++i) {
    const serving::Timeline& request = run.requests[i];
    if (request.outcome != Outcome::answered) continue;
    times.push_back({.arrival_s = request.arrival_s,
                     .prompt_tokens = scored.prompt_tokens[i],
                     .token_times_s = spread_bursts(request.token_s)});
    first.push_back(request.token_s.front() - request.arrival_s);
    queueing.push_back(request.admitted_s - request.arrival_s);
  }
  const metrics::ServiceLevel level{.time_to_first_token_s = settings.time_to_first_token_ms / kMilliseconds,
                           .time_per_output_token_s = settings.time_per_output_token_ms / kMilliseconds};
  const metrics::ServingSummary summary = metrics::serving_summary(times, level);
  // What was refused or failed has met nothing.
  const double answered = static_cast<double>(times.size()) / static_cast<double>(run.requests.size());
  add(result, clock, "offered_requests_per_s", scored.rate, "requests/s");
  add_spread(result, clock, "time_to_first_token_ms", summary.time_to_first_token_s);
  add_spread(result, clock, "queueing_ms", metrics::summarize(queueing));
  add_spread(result, clock, "inter_token_latency_ms", summary.inter_token_latency_s);
  add(result, clock, "served_tokens_per_s", summary.output_tokens_per_s, "tokens/s");
  add(result, clock, "served_requests_per_s", summary.requests_per_s, "requests/s");
  add(result, clock, "attainment", summary.attainment * answered, "fraction");
  add(result, clock, "goodput_latency_per_s", summary.goodput_requests_per_s, "requests/s");
  const metrics::ScoreGoodput goodput =
      metrics::score_goodput(scored.scores, scored.full_scores, summary.duration_s, settings.score_share);
  add(result, clock, "goodput_score_per_s", goodput.goodput_per_s, "requests/s");
  add_series(result, clock, "time_to_first_token_ms", first);
  add_series(result, clock, "queueing_ms", queueing);
}

}  // namespace kvarena::evaluate
