#pragma once
// Methods under load: requests of one workload that arrive over time, at one point of a sweep.

#include <filesystem>
#include <optional>
#include <vector>

#include "harness/cost_model/hardware.h"
#include "harness/engine/serving/load.h"
#include "harness/evaluate/evaluated_method.h"
#include "harness/evaluate/request.h"
#include "harness/experiment/config.h"

namespace kvarena::evaluate {

/// Inputs of a serving point. Spans must outlive the evaluation.
struct ServingTask {
  const experiment::ServingSettings& settings;
  std::span<const Request> requests;            // of this point alone
  size_t point = 0;                             // place in settings.load
  uint64_t seed = 0;                            // of arrival times
  std::optional<cost_model::Hardware> machine;  // of the modelled clock
};

/// Serves all requests at once with full KV: its rate is the capacity that loads are shares of, its answers are the
/// reference of goodput by score, and it warms the machine up. Then serves every method by itself, at the same arrival
/// times. Each request prefills its own prompt: nothing is cached between requests, but for methods
/// that reuse entries, whose memory is primed with every request's parts before the first arrives. With
/// settings.stored_prompts each loads its prompt's cache instead (stored_start.h).
///
/// Values, on the measured clock, and on the modelled one where a machine is described and the method feeds one token a
/// step and reads prompts as full KV does: offered_requests_per_s, mean_, p50_, p90_ and p99_ of time_to_first_token_ms
/// (queueing included), queueing_ms, inter_token_latency_ms and end_to_end_ms (arrival to last token),
/// served_tokens_per_s, served_requests_per_s, attainment, goodput_latency_per_s, goodput_score_per_s; measured only,
/// peak_cache_bytes. The modelled run takes prompts, answers and kept bytes from the real one, and of a method that
/// selected, what its steps attend to and fetch from its costs on the longest prompt (engine/method_cost.h). Without a
/// clock: served_score (mean of the workload's first metric), refused_requests. Series by answered request:
/// time_to_first_token_ms, queueing_ms; by request, NaN for one without an answer: end_to_end_ms.
[[nodiscard]] std::vector<experiment::SampleOutcome> evaluate_serving(Transformer& model, const ServingTask& task,
                                                                      std::span<const EvaluatedMethod> methods);

/// The machine of configs/hardware/<name>.json in `folder`, or of the file `name`. Nothing for "". Throws UserError
/// naming the machines there are.
[[nodiscard]] std::optional<cost_model::Hardware> serving_machine(const std::string& name,
                                                                  const std::filesystem::path& folder);

}  // namespace kvarena::evaluate
