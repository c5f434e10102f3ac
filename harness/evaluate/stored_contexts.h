#pragma once
// Policies that place stored contexts, under load: requests that begin with a context's real cache, wherever it lies.

#include <filesystem>
#include <functional>
#include <vector>

#include "harness/evaluate/context_with_queries.h"
#include "harness/evaluate/evaluated_method.h"
#include "harness/experiment/config.h"

namespace kvarena::evaluate {

/// Similarity of an answer to full KV's, 1 at best.
using AnswerSimilarity =
    std::function<double(const Request& request, std::span<const int32_t> answer, std::span<const int32_t> full)>;

struct StoredSet;

struct StoredContextsTask {
  const experiment::ServingSettings& serving;
  const experiment::ContextSettings& contexts;
  std::span<const ContextWithQueries> asked;  // the point's own
  std::shared_ptr<const ModelFacts> facts;
  std::filesystem::path folder;  // where a folder for the disk tier is made, and removed
  AnswerSimilarity similarity;
  size_t point = 0;   // place in serving.load
  uint64_t seed = 0;  // of arrival times and of what is asked
};

/// Serves serving.requests requests about contexts drawn by popularity; each asks the next of its context's test
/// questions. Full KV first, all requests at once: the capacity that loads are shares of, and the answers that others
/// are compared with. Then every method at the same arrival times with all contexts stored, as contexts.past_requests
/// requests by the same popularity left them, and placed anew where a policy does that: a placement policy begins a
/// request with the context's cache; full KV reads the whole prompt. A context is moved or compressed beside the passes
/// behind the one in which its request began; requests that ask the store meanwhile wait for files alone. Profiling
/// anew is in passes that have room and in the time while no request runs. All of it is on the clock.
///
/// Values as evaluate_serving()'s on the measured clock, where scores are similarities; served_score their mean. And
/// device_hits where contexts lie there, memory_hits, disk_hits, remote_hits (shares of requests; of one that reads
/// chunks from several tiers, shares of the bytes that it reads), recomputed_contexts (share of requests),
/// cache_load_ms, cache_restore_ms (means), peak_device_bytes, peak_memory_bytes, peak_disk_bytes, keep_on_device,
/// keep_in_memory, keep_on_disk (mean share kept of the contexts that lie there in the end, of chunks the share that
/// lies there), original_bytes where forms are made later, lost_utility_s of a policy of known utility over a dozen
/// contexts at most (seconds a use, of the placement before the first request, below the exact optimum's),
/// reprofiled_contexts, and, where there are such, profiling_p99_time_to_first_token_ms of requests that waited while a
/// context was profiled anew and the same with before_ and after_ of those that came before the first such time, and of
/// the others. Series by request: answer_similarity, answered_ms (since the run began, NaN for a request without an
/// answer), request_tokens of the whole prompt. Events: context_stored for each context as it lies in the end,
/// context_profiled.
[[nodiscard]] std::vector<experiment::SampleOutcome> evaluate_stored_contexts(Transformer& model,
                                                                              const StoredContextsTask& task,
                                                                              const StoredSet& set,
                                                                              std::span<const EvaluatedMethod> methods);

}  // namespace kvarena::evaluate
