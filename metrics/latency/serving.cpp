#include "metrics/latency/serving.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/registry.h"
#include "metrics/statistics.h"
#include "metrics/stored_metrics.h"

namespace kvarena::metrics {
namespace {

double per_second(double amount, double duration_s) { return duration_s > 0 ? amount / duration_s : 0.0; }

void add_times(nlohmann::json& out, const std::string& name, const LatencySummary& s) {
  out["mean_" + name + "_ms"] = s.mean * 1000;
  out["median_" + name + "_ms"] = s.median * 1000;
  out["std_" + name + "_ms"] = s.standard_deviation * 1000;
  out["percentiles_" + name + "_ms"] = {{50.0, s.p50 * 1000}, {90.0, s.p90 * 1000}, {99.0, s.p99 * 1000}};
}

nlohmann::json recompute(const nlohmann::json& row, const VectorContext&) {
  std::vector<RequestTimes> requests;
  nlohmann::json per_request = nlohmann::json::array();
  for (const auto& r : row.at("requests")) {
    requests.push_back({r.at("arrival").get<double>(), r.at("prompt_tokens").get<int64_t>(),
                        r.at("token_timestamps").get<std::vector<double>>()});
    const RequestLatency latency = request_latency(requests.back());
    per_request.push_back({{"ttft", latency.time_to_first_token_s},
                           {"tpot", latency.time_per_output_token_s},
                           {"e2e", latency.end_to_end_s},
                           {"itl", latency.inter_token_latency_s}});
  }
  const ServingSummary s = serving_summary(requests, {.time_to_first_token_s = row.at("slo_ttft_s").get<double>(),
                                                      .time_per_output_token_s = row.at("slo_tpot_s").get<double>()});
  nlohmann::json vllm = {{"completed", s.completed},
                         {"total_input", s.prompt_tokens},
                         {"total_output", s.output_tokens},
                         {"request_throughput", s.requests_per_s},
                         {"request_goodput", s.goodput_requests_per_s},
                         {"output_throughput", s.output_tokens_per_s},
                         {"total_token_throughput", s.total_tokens_per_s}};
  add_times(vllm, "ttft", s.time_to_first_token_s);
  add_times(vllm, "tpot", s.time_per_output_token_s);
  add_times(vllm, "itl", s.inter_token_latency_s);
  add_times(vllm, "e2el", s.end_to_end_s);
  return {{"expected",
           {{"per_request", std::move(per_request)},
            {"benchmark_duration_s", s.duration_s},
            {"distserve_slo_attainment", s.attainment},
            {"vllm_metrics", std::move(vllm)}}}};
}

}  // namespace

RequestLatency request_latency(const RequestTimes& request) {
  const auto& times = request.token_times_s;
  KVARENA_ASSERT(!times.empty(), "a request without output tokens");
  RequestLatency latency;
  latency.time_to_first_token_s = times.front() - request.arrival_s;
  latency.end_to_end_s = times.back() - request.arrival_s;
  for (size_t i = 1; i < times.size(); ++i) latency.inter_token_latency_s.push_back(times[i] - times[i - 1]);
  if (times.size() > 1) {
    latency.time_per_output_token_s = (times.back() - times.front()) / static_cast<double>(times.size() - 1);
  }
  return latency;
}

LatencySummary summarize(std::span<const double> values) {
  if (values.empty()) return {};
  LatencySummary s;
  s.mean = mean_of(values);
  double squares = 0;
  for (const double v : values) squares += (v - s.mean) * (v - s.mean);
  s.standard_deviation = std::sqrt(squares / static_cast<double>(values.size()));
  s.p50 = s.median = percentile(values, 50);
  s.p90 = percentile(values, 90);
  s.p95 = percentile(values, 95);
  s.p99 = percentile(values, 99);
  return s;
}

bool meets(const RequestLatency& latency, const ServiceLevel& level) {
  const auto within = [](double value, const std::optional<double>& bound) { return !bound || value <= *bound; };
  return within(latency.time_to_first_token_s, level.time_to_first_token_s) &&
         within(latency.time_per_output_token_s, level.time_per_output_token_s) &&
         within(latency.end_to_end_s, level.end_to_end_s);
}

ServingSummary serving_summary(std::span<const RequestTimes> requests, const ServiceLevel& level) {
  ServingSummary s;
  if (requests.empty()) return s;
  std::vector<double> first, per_token, gaps, whole;
  double start = std::numeric_limits<double>::infinity();
  double end = -start;
  int64_t good = 0;
  for (const RequestTimes& request : requests) {
    const RequestLatency latency = request_latency(request);
    first.push_back(latency.time_to_first_token_s);
    whole.push_back(latency.end_to_end_s);
    gaps.insert(gaps.end(), latency.inter_token_latency_s.begin(), latency.inter_token_latency_s.end());
    if (request.token_times_s.size() > 1) per_token.push_back(latency.time_per_output_token_s);
    good += meets(latency, level);
    s.prompt_tokens += request.prompt_tokens;
    s.output_tokens += static_cast<int64_t>(request.token_times_s.size());
    start = std::min(start, request.arrival_s);
    end = std::max(end, request.token_times_s.back());
  }
  s.completed = static_cast<int64_t>(requests.size());
  s.duration_s = end - start;
  s.requests_per_s = per_second(static_cast<double>(s.completed), s.duration_s);
  s.output_tokens_per_s = per_second(static_cast<double>(s.output_tokens), s.duration_s);
  s.total_tokens_per_s = per_second(static_cast<double>(s.prompt_tokens + s.output_tokens), s.duration_s);
  s.goodput_requests_per_s = per_second(static_cast<double>(good), s.duration_s);
  s.attainment = static_cast<double>(good) / static_cast<double>(s.completed);
  s.time_to_first_token_s = summarize(first);
  s.time_per_output_token_s = summarize(per_token);
  s.inter_token_latency_s = summarize(gaps);
  s.end_to_end_s = summarize(whole);
  return s;
}

KVARENA_METRIC(
    {.id = "serving_latency",
     .title = "Serving latency and throughput",
     .kind = MetricKind::latency,
     .unit = "seconds",
     .table_scale = 1,
     .better = Better::lower,
     .summary = "TTFT, ITL, TPOT and end-to-end percentiles, throughput, goodput and attainment from arrival and "
                "token times.",
     .source = "LLMServe/DistServe RequestResult; vLLM benchmark_serving calculate_metrics",
     .stored = {kPrefillMs,
                kObserveMs,
                kCompressMs,
                kCompressionOverhead,
                kTimeToFirstTokenMs,
                kInterTokenLatencyMs,
                kThroughputTokensPerS,
                kBatchRequests,
                kConcurrentRequests,
                kOfferedRequestsPerS,
                kTimeToFirstTokenSpread.mean,
                kTimeToFirstTokenSpread.p50,
                kTimeToFirstTokenSpread.p90,
                kTimeToFirstTokenSpread.p99,
                kQueueingSpread.mean,
                kQueueingSpread.p50,
                kQueueingSpread.p90,
                kQueueingSpread.p99,
                kInterTokenLatencySpread.mean,
                kInterTokenLatencySpread.p50,
                kInterTokenLatencySpread.p90,
                kInterTokenLatencySpread.p99,
                kEndToEndSpread.mean,
                kEndToEndSpread.p50,
                kEndToEndSpread.p90,
                kEndToEndSpread.p99,
                kServedTokensPerS,
                kServedRequestsPerS,
                kAttainment,
                kGoodputLatencyPerS,
                kGoodputScorePerS,
                kGoodputRatePerS,
                kServedScore,
                kRefusedRequests,
                kPeakCacheBytes},
     .vectors = {{"serving", recompute}}});

}  // namespace kvarena::metrics
