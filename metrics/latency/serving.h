#pragma once
// Serving latency and throughput from arrival and token times. Times are seconds on one clock.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kvarena::metrics {

/// One finished request. `arrival_s` is when it was due, not when it was sent late.
struct RequestTimes {
  double arrival_s = 0;
  int64_t prompt_tokens = 0;
  std::vector<double> token_times_s;  ///< of every output token, ascending; at least one
};

struct RequestLatency {
  double time_to_first_token_s = 0;    ///< queueing, loading and prefill included
  double time_per_output_token_s = 0;  ///< mean gap after the first token; 0 for a single token (DistServe)
  double end_to_end_s = 0;
  std::vector<double> inter_token_latency_s;  ///< every gap
};

/// Throws InternalError for a request without tokens.
[[nodiscard]] RequestLatency request_latency(const RequestTimes& request);

/// One distribution of times.
struct LatencySummary {
  double mean = 0, median = 0, standard_deviation = 0;  ///< standard deviation with n in the denominator, as numpy's
  double p50 = 0, p90 = 0, p95 = 0, p99 = 0;            ///< linear interpolation
};

/// Zeros for no values.
[[nodiscard]] LatencySummary summarize(std::span<const double> values);

struct ServiceLevel {
  std::optional<double> time_to_first_token_s;
  std::optional<double> time_per_output_token_s;
  std::optional<double> end_to_end_s;
};

/// Whether a request meets every given bound.
[[nodiscard]] bool meets(const RequestLatency& latency, const ServiceLevel& level);

struct ServingSummary {
  int64_t completed = 0;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  double duration_s = 0;  ///< last token minus first arrival
  double requests_per_s = 0;
  double output_tokens_per_s = 0;
  double total_tokens_per_s = 0;
  double goodput_requests_per_s = 0;  ///< requests that meet the level, over duration (vLLM)
  double attainment = 0;              ///< share of requests that meet the level (DistServe)
  LatencySummary time_to_first_token_s;
  LatencySummary time_per_output_token_s;  ///< over requests with more than one token
  LatencySummary inter_token_latency_s;    ///< over all gaps of all requests
  LatencySummary end_to_end_s;
};

/// Leave warm-up requests out before calling. Without requests everything is 0.
[[nodiscard]] ServingSummary serving_summary(std::span<const RequestTimes> requests, const ServiceLevel& level = {});

/// SpecCache, Eq. 8: requests per second whose score is at least gamma = 0.8 times the mean score of full recompute.
struct ScoreGoodput {
  double gamma = 0;
  int64_t valid = 0;
  double goodput_per_s = 0;
  double throughput_per_s = 0;
  double full_recompute_valid_share =
      0;  ///< how many full-recompute requests pass: gamma is small when scores are 0 or 1
};

[[nodiscard]] ScoreGoodput score_goodput(std::span<const double> scores, std::span<const double> full_recompute_scores,
                                         double duration_s, double share = 0.8);

}  // namespace kvarena::metrics
