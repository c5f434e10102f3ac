#pragma once
// Requests whose prompts' caches lie in a store behind a fast link and a slow one, under one method.

#include <span>

#include "harness/evaluate/evaluated_method.h"
#include "harness/evaluate/request.h"
#include "harness/experiment/config.h"

namespace kvarena::evaluate {

struct RemotePrefixTask {
  const experiment::TimingSettings& timing;
  const experiment::RemotePrefixSettings& links;
  uint64_t seed = 0;  // of arrival times
};

/// timing.batch requests (harness/engine/serving/prefix_run.h) for the distinct prompts of `requests`, in turn; each
/// prompt is read and stored once, before the clock runs, in this process or in the store that links.store names. Full
/// KV goes the paths without drafts; a verifier with a drafter the one that it names, or the mix of all that serves the
/// most tokens; both mixes are solved by harness/cost_model from what this machine was measured to take for a pass of
/// one request and of many, from stored bytes, from the links' rates and from the drafter's acceptance. A method whose
/// caches can be stored decodes on its own, unverified; one that reuses nothing reads the prompt. Other methods fail
/// with the reason.
///
/// Values on the measured clock, medians over the repeats: of a request on average, time_to_first_token_ms (from its
/// arrival; verified, where anything verifies), first_draft_ms, end_to_end_ms and inter_token_latency_ms;
/// throughput_tokens_per_s of all; fast_link_bytes and slow_link_bytes a request, slow_link_utilisation,
/// late_verifies (of all requests, where anything is drafted), transfer_hidden (of the time in which a cache was on its
/// way, the share in which passes ran), acceptance_rate, and exact_match_full, the share of requests with full KV's
/// very tokens. On the modelled clock planned_tokens_per_s, the programme's expectation of the paths that it chose.
/// Series hold one number a repeat. All are marked as emulated where a link has a rate.
[[nodiscard]] experiment::SampleOutcome evaluate_remote_prefix(Transformer& model, std::span<const Request> requests,
                                                               const EvaluatedMethod& evaluated,
                                                               const RemotePrefixTask& task);

}  // namespace kvarena::evaluate
