#pragma once
// Requests that arrive over time at a server: the arrivals, objectives and values of serving cells, over HTTP.

#include <functional>
#include <string>
#include <vector>

#include "harness/engine/serving/serve.h"
#include "harness/evaluate/completion_endpoint.h"
#include "harness/evaluate/serving.h"

namespace kvarena::evaluate {

/// Answers a request of a load; `now` is the time since the load began. Called on a thread of the request's own.
using AskTimed = std::function<serving::Timeline(int64_t request, const std::function<double()>& now)>;

/// Serves every request of the load by asking for it when it is due, however many are under way.
[[nodiscard]] serving::ServingRun serve_by_asking(serving::Load load, const AskTimed& ask);

/// The baseline's answers to all requests at once: loads are shares of its rate, and goodput by score is measured by
/// its scores.
struct LoadReference {
  double capacity = 0;
  std::vector<double> scores;
};

/// Throws UserError where no request is answered.
[[nodiscard]] LoadReference measure_load(const CompletionEndpoint& baseline, const ServingTask& task,
                                         const std::string& prompts);

/// As evaluate_serving(), of one setting. Times are those of the arrival of tokens here, from when a request was due.
/// Requests that fail or are refused are counted, and meet no objective: failed_requests, refused_requests, and in the
/// activity how many took too long and every reason. Nobody knows queueing nor bytes. The server is told to keep
/// nothing between requests, or with a shared prefix what they have in common.
[[nodiscard]] experiment::SampleOutcome evaluate_load(const CompletionEndpoint& server, const ServingTask& task,
                                                      const LoadReference& reference, const std::string& prompts);

}  // namespace kvarena::evaluate
