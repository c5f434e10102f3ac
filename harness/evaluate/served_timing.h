#pragma once
// Latency and throughput of a server's setting, by the arrival of streamed tokens.

#include "harness/evaluate/completion_endpoint.h"
#include "harness/evaluate/request.h"
#include "harness/experiment/evaluator.h"

namespace kvarena::evaluate {

/// As evaluate_timing(), of so many equal requests that are sent at once over connections of their own, after warm-ups.
/// Latencies are those of the first request of each repeat and contain the network; throughput is of all: tokens behind
/// each request's first over the time from the first of these to the last token. A request that fails counts in
/// failed_requests; a repeat whose first request fails has no latency. Throws UserError where no repeat has one.
[[nodiscard]] experiment::SampleOutcome evaluate_timing_served(const CompletionEndpoint& server, const Request& request,
                                                               const std::string& prompts,
                                                               const experiment::TimingSettings& settings);

}  // namespace kvarena::evaluate
